#include "tests/support/fake_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "bench/preflight/checks.h"
#include "bench/preflight/read_facts.h"
#include "transport/base/check.h"
#include "transport/base/params.h"

namespace pacecar::preflight {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kSwitchUp = "sys/devices/pci0000:3a/0000:3a:00.0";
constexpr std::string_view kNic = "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";
constexpr std::string_view kGpu = "sys/devices/pci0000:3a/0000:3a:00.0/0000:3c:00.0";

void add_pci(FakeHost& host, std::string_view path, std::string_view vendor,
             std::string_view device_class) {
  const std::string folder(path);
  const std::string address = folder.substr(folder.rfind('/') + 1);
  host.link("sys/bus/pci/devices/" + address, path)
      .file(folder + "/vendor", vendor)
      .file(folder + "/class", device_class)
      .file(folder + "/numa_node", "0\n")
      .file(folder + "/current_link_speed", "16.0 GT/s PCIe\n")
      .file(folder + "/max_link_speed", "16.0 GT/s PCIe\n")
      .file(folder + "/current_link_width", "16\n")
      .file(folder + "/max_link_width", "16\n")
      .file(folder + "/iommu_group/type", "identity\n");
}

void add_device(FakeHost& host, const std::string& name, std::string_view link_layer) {
  const std::string folder = "sys/class/infiniband/" + name;
  host.file(folder + "/fw_ver", "20.39.1002\n")
      .file(folder + "/node_guid", "b83f:d203:00aa:bb01\n")
      .file(folder + "/ports/1/link_layer", fmt::format("{}\n", link_layer))
      .file(folder + "/ports/1/state", "4: ACTIVE\n")
      .file(folder + "/ports/1/phys_state", "5: LinkUp\n")
      .file(folder + "/ports/1/rate", "100 Gb/sec (4X EDR)\n")
      .file(folder + "/ports/1/hw_counters/out_of_sequence", "0\n")
      .file(folder + "/ports/1/hw_counters/packet_seq_err", "0\n")
      .file("sys/class/infiniband_verbs/abi_version", "6\n")
      .file("sys/class/infiniband_verbs/uverbs0/ibdev", name + "\n")
      .file("dev/infiniband/uverbs0", "")
      .folder("sys/module/ib_uverbs")
      .file("usr/lib/x86_64-linux-gnu/libibverbs.so.1", "");
}

// The kernel's GID table: link-local and IPv4, each as RoCE v1 and v2; the other entries are empty.
void add_gids(FakeHost& host, const std::string& device, const std::string& netdev) {
  const std::string port = "sys/class/infiniband/" + device + "/ports/1/";
  const std::string_view local = "fe80:0000:0000:0000:ba3f:d2ff:feaa:bb01\n";
  const std::string_view ipv4 = "0000:0000:0000:0000:0000:ffff:c000:0215\n";
  const std::string_view none = "0000:0000:0000:0000:0000:0000:0000:0000\n";
  for (int i = 0; i < 6; ++i) {
    host.file(fmt::format("{}gids/{}", port, i), i < 2 ? local : i < 4 ? ipv4 : none);
    if (i >= 4) continue;
    host.file(fmt::format("{}gid_attrs/types/{}", port, i),
              i % 2 == 0 ? "IB/RoCE v1\n" : "RoCE v2\n");
    host.file(fmt::format("{}gid_attrs/ndevs/{}", port, i), netdev + "\n");
  }
}

}  // namespace

FakeHost::FakeHost() {
  // In memory if possible: hundreds of small files take seconds on a disk.
  const fs::path memory = "/dev/shm";
  const fs::path parent = fs::is_directory(memory) ? memory : fs::temp_directory_path();
  std::string name = (parent / "pacecar-host-XXXXXX").string();
  PACECAR_CHECK(mkdtemp(name.data()) != nullptr);
  root_ = name;
}

FakeHost::~FakeHost() { fs::remove_all(root_); }

fs::path FakeHost::prepare(std::string_view path) {
  const fs::path full = root_ / path;
  fs::create_directories(full.parent_path());
  fs::remove_all(full);
  return full;
}

FakeHost& FakeHost::file(std::string_view path, std::string_view content) {
  std::ofstream(prepare(path), std::ios::binary) << content;
  return *this;
}

FakeHost& FakeHost::link(std::string_view path, std::string_view target) {
  const fs::path full = prepare(path);
  fs::create_symlink(fs::relative(root_ / target, full.parent_path()), full);
  return *this;
}

FakeHost& FakeHost::folder(std::string_view path) {
  fs::create_directories(prepare(path));
  return *this;
}

FakeHost& FakeHost::remove(std::string_view path) {
  fs::remove_all(root_ / path);
  return *this;
}

std::vector<fs::path> FakeHost::files() const {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(root_)) {
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

Facts FakeHost::facts() const {
  Facts facts = read_facts(tree(), /*live=*/false);
  facts.settings.version = "1.2.3";
  facts.settings.socket_buffer = Params().socket_buffer;
  return facts;
}

Findings FakeHost::findings() const { return examine(facts(), checks()); }

void make_plain_host(FakeHost& host) {
  host.file("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
      .file("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt\n")
      .file("etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n")
      .file("proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max open files            65536                1048576              files     \n"
            "Max locked memory         unlimited            unlimited            bytes     \n")
      .file("proc/self/status",
            "Name:\tpacecar\nCapEff:\t0000000000000000\n"
            "Cpus_allowed_list:\t0-15\n")
      .file("proc/self/cgroup", "0::/user.slice\n")
      .file("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n")
      .file("proc/meminfo", "MemTotal:  1000 kB\nHugePages_Total:    512\n")
      .file("proc/sys/net/core/rmem_max", "16777216\n")
      .file("proc/sys/net/core/wmem_max", "16777216\n")
      .file("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
      .file("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n")
      .file("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "2\n")
      .file("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "200\n")
      .file("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "1\n")
      .file("sys/devices/system/node/node0/cpulist", "0-7\n")
      .file("sys/devices/system/node/node1/cpulist", "8-15\n")
      .file("usr/lib/x86_64-linux-gnu/libnccl.so.2", "")
      .file("usr/lib/x86_64-linux-gnu/libnccl.so.2.28.9", "");
}

void make_mlx5_host(FakeHost& host) {
  make_plain_host(host);
  add_pci(host, kSwitchUp, "0x1000\n", "0x060400\n");
  host.file(std::string(kSwitchUp) + "/config", config_with_acs(0));
  add_pci(host, kNic, "0x15b3\n", "0x020000\n");
  add_pci(host, kGpu, "0x10de\n", "0x030200\n");
  add_device(host, "mlx5_0", "Ethernet");
  add_gids(host, "mlx5_0", "eth2");
  host.link("sys/class/infiniband/mlx5_0/device", kNic)
      .link(std::string(kNic) + "/driver", "sys/bus/pci/drivers/mlx5_core")
      .file("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "")
      .file("usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so", "")
      .folder("sys/module/mlx5_ib")
      .folder("sys/module/nvidia_peermem")
      .file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535\n")
      .file("sys/class/net/eth2/mtu", "9000\n")
      .file("sys/class/net/eth2/operstate", "up\n")
      .link("sys/class/net/eth2/device", kNic);
  for (int priority = 0; priority < 8; ++priority) {
    for (const char* side : {"roce_np", "roce_rp"}) {
      host.file(fmt::format("sys/class/net/eth2/ecn/{}/enable/{}", side, priority),
                priority == 3 ? "1\n" : "0\n");
    }
  }
}

void make_infiniband_host(FakeHost& host) {
  make_plain_host(host);
  add_pci(host, kNic, "0x15b3\n", "0x020700\n");
  add_device(host, "mlx5_0", "InfiniBand");
  host.link("sys/class/infiniband/mlx5_0/device", kNic)
      .link(std::string(kNic) + "/driver", "sys/bus/pci/drivers/mlx5_core")
      .file("usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so", "");
}

void make_rxe_host(FakeHost& host) {
  make_plain_host(host);
  add_device(host, "rxe0", "Ethernet");
  add_gids(host, "rxe0", "eth0");
  host.file("sys/class/infiniband/rxe0/parent", "eth0\n")
      .file("usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so", "")
      .folder("sys/module/rdma_rxe")
      .file("sys/class/net/eth0/mtu", "4200\n")
      .file("sys/class/net/eth0/operstate", "up\n")
      .folder("sys/class/net/eth0/device");
}

std::string config_with_acs(uint16_t control) {
  std::string config(4096, '\0');
  const auto put = [&](size_t offset, uint32_t value) {
    for (size_t i = 0; i < 4; ++i) config[offset + i] = static_cast<char>(value >> (8 * i));
  };
  put(0x100, 0x14810001);  // Advanced Error Reporting, next at 0x148
  put(0x148, 0x0001000d);  // ACS, the last
  put(0x14c, static_cast<uint32_t>(control) << 16 | 0x001f);
  return config;
}

}  // namespace pacecar::preflight
