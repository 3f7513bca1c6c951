// Kernel, modules and libraries, from /proc, /sys, /etc and the folders where libraries lie.
#include <array>
#include <set>

#include "bench/preflight/read_facts.h"

namespace pacecar::preflight {
namespace {

constexpr std::array<std::string_view, 9> kModules = {"ib_uverbs", "mlx4_ib",        "mlx5_ib",
                                                      "rdma_cm",   "rdma_rxe",       "rdma_ucm",
                                                      "nvidia",    "nvidia_peermem", "siw"};

constexpr std::array<std::string_view, 8> kLibraryFolders = {"usr/lib/x86_64-linux-gnu",
                                                             "usr/lib/aarch64-linux-gnu",
                                                             "usr/lib64",
                                                             "usr/lib",
                                                             "lib64",
                                                             "usr/local/lib",
                                                             "usr/local/cuda/lib64",
                                                             "opt/nccl/lib"};

// The path of the library whose name begins so, the longest such name: that is the file itself,
// with its whole version, not a link to it.
std::string find_library(const HostTree& tree, std::string_view prefix) {
  for (const std::string_view folder : kLibraryFolders) {
    std::string longest;
    for (const std::string& name : tree.names(folder)) {
      if (name.starts_with(prefix) && name.size() > longest.size()) longest = name;
    }
    if (!longest.empty()) return "/" + std::string(folder) + "/" + longest;
  }
  return "";
}

// "mlx5" of "libmlx5-rdmav34.so", and "rxe" of "librxe-rdmav34.so".
std::vector<std::string> find_providers(const HostTree& tree) {
  std::set<std::string> providers;
  for (const std::string_view folder : kLibraryFolders) {
    for (const std::string& name : tree.names(std::string(folder) + "/libibverbs")) {
      const size_t end = name.find("-rdmav");
      if (name.starts_with("lib") && end != std::string::npos) {
        providers.insert(name.substr(3, end - 3));
      }
    }
  }
  return {providers.begin(), providers.end()};
}

}  // namespace

Software read_software(const HostTree& tree) {
  Software software;
  software.kernel = tree.text("proc/sys/kernel/osrelease");
  software.os = value_of(tree.text("etc/os-release"), "PRETTY_NAME", '=');
  software.kernel_command_line = tree.text("proc/cmdline");
  for (const std::string_view module : kModules) {
    if (tree.exists("sys/module/" + std::string(module))) software.modules.emplace_back(module);
  }
  software.libibverbs = find_library(tree, "libibverbs.so.1");
  software.providers = find_providers(tree);
  software.nccl = find_library(tree, "libnccl.so.2");
  const std::string nvidia = tree.text("proc/driver/nvidia/version");
  software.nvidia_driver = nvidia.substr(0, nvidia.find('\n'));
  software.iommu_groups = !tree.names("sys/kernel/iommu_groups").empty();
  software.receive_buffer_max = tree.number("proc/sys/net/core/rmem_max");
  software.send_buffer_max = tree.number("proc/sys/net/core/wmem_max");
  return software;
}

}  // namespace pacecar::preflight
