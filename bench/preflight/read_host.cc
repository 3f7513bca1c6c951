// This process's limits, CPUs and container; the machine's CPUs; kernel, modules and libraries:
// from /proc, /sys, /etc and the folders where libraries lie.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "bench/preflight/read_facts.h"

namespace pacecar::preflight {
namespace {

// linux/capability.h
constexpr uint64_t kCapNetAdmin = 12;
constexpr uint64_t kCapIpcLock = 14;

// The soft limit in "Max open files            1024                 4096                 files".
std::optional<uint64_t> limit_of(std::string_view limits, std::string_view name) {
  for (const std::string& line : split(limits, '\n')) {
    if (!line.starts_with(name)) continue;
    const auto columns = split(std::string_view(line).substr(name.size()), ' ');
    if (columns.empty()) return std::nullopt;
    return columns.front() == "unlimited" ? UINT64_MAX : parse_number(columns.front());
  }
  return std::nullopt;
}

// The path in the line "0::/path" of the unified hierarchy.
std::string control_group(const HostTree& tree) {
  for (const std::string& line : split(tree.text("proc/self/cgroup"), '\n')) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return "/";
}

// "50000 100000": microseconds of CPU time in each period; "max 100000": no limit.
std::optional<double> parse_quota(std::string_view text) {
  const auto columns = split(text, ' ');
  if (columns.size() != 2) return std::nullopt;
  const auto quota = parse_number(columns[0]);
  const auto period = parse_number(columns[1]);
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<uint64_t> deepest_idle_us(const HostTree& tree) {
  const std::string folder = "sys/devices/system/cpu/cpu0/cpuidle";
  std::optional<uint64_t> deepest;
  for (const std::string& state : tree.names(folder)) {
    if (tree.number(folder + "/" + state + "/disable").value_or(0) != 0) continue;
    const auto latency = tree.number(folder + "/" + state + "/latency");
    if (latency) deepest = std::max(deepest.value_or(0), *latency);
  }
  return deepest;
}

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

Process read_process(const HostTree& tree) {
  Process process;
  const std::string limits = tree.text("proc/self/limits");
  process.memlock_bytes = limit_of(limits, "Max locked memory");
  process.open_files = limit_of(limits, "Max open files");
  const std::string status = tree.text("proc/self/status");
  // In a user namespace of its own a process has them for nothing that these limits concern.
  const std::string users = tree.text("proc/self/uid_map");
  const bool initial = users.empty() || users.ends_with("4294967295");
  const uint64_t capabilities =
      initial ? parse_number(value_of(status, "CapEff", ':'), 16).value_or(0) : 0;
  process.may_lock_memory = ((capabilities >> kCapIpcLock) & 1) != 0;
  process.may_force_buffers = ((capabilities >> kCapNetAdmin) & 1) != 0;
  process.cpus = parse_ranges(value_of(status, "Cpus_allowed_list", ':'));
  const std::string group = control_group(tree);
  process.cpu_quota_file =
      fmt::format("/sys/fs/cgroup{}{}cpu.max", group, group.ends_with('/') ? "" : "/");
  process.cpu_quota = parse_quota(tree.text(std::string_view(process.cpu_quota_file).substr(1)));
  process.in_container = tree.exists(".dockerenv") || tree.exists("run/.containerenv") ||
                         tree.exists("var/run/secrets/kubernetes.io");
  return process;
}

Cpu read_cpu(const HostTree& tree) {
  Cpu cpu;
  for (const std::string& name : tree.names("sys/devices/system/cpu")) {
    if (!name.starts_with("cpu") || !parse_number(name.substr(3))) continue;  // such as cpufreq
    const std::string governor =
        tree.text("sys/devices/system/cpu/" + name + "/cpufreq/scaling_governor");
    if (!governor.empty()) ++cpu.governors[governor];
  }
  cpu.deepest_idle_us = deepest_idle_us(tree);
  for (const std::string& name : tree.names("sys/devices/system/node")) {
    const auto node = name.starts_with("node") ? parse_number(name.substr(4)) : std::nullopt;
    if (!node) continue;
    const std::string cpus = tree.text("sys/devices/system/node/" + name + "/cpulist");
    if (!cpus.empty()) cpu.numa_nodes[*node] = parse_ranges(cpus);
  }
  cpu.huge_pages = parse_number(value_of(tree.text("proc/meminfo"), "HugePages_Total", ':'));
  return cpu;
}

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
