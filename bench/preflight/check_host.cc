// The checks of the rest of a host.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {

// --- limits: of the process and of the kernel ---

namespace {

// A communicator registers NCCL's buffers, some megabytes for each channel and peer.
constexpr uint64_t kLeastMemlock = 64ULL << 20;
constexpr uint64_t kEnoughFiles = 4096;  // 1,024 connections, with room for the application

void check_memlock(const Facts& facts, Findings& findings) {
  const Process& process = facts.process;
  if (!process.memlock_bytes) return;
  if (facts.rdma.empty()) {
    findings.add("limits.memlock", "locked memory", "no RDMA device needs it");
  } else if (process.may_lock_memory) {
    findings.add("limits.memlock", "locked memory", "CAP_IPC_LOCK: the limit does not apply");
  } else if (*process.memlock_bytes == UINT64_MAX) {
    findings.add("limits.memlock", "locked memory", "unlimited");
  } else {
    const bool low = *process.memlock_bytes < kLeastMemlock;
    findings.add(low ? FindingId("limits.memlock_low") : FindingId("limits.memlock_finite"),
                 "locked memory",
                 "{} KiB, and no CAP_IPC_LOCK: raise it for good in /etc/security/limits.d, or "
                 "with LimitMEMLOCK= of the service",
                 *process.memlock_bytes >> 10);
  }
}

void check_files(const Process& process, Findings& findings) {
  if (!process.open_files) return;
  const std::string text = *process.open_files == UINT64_MAX
                               ? "unlimited"
                               : fmt::format("at most {}", *process.open_files);
  if (*process.open_files >= kEnoughFiles) {
    findings.add("limits.files", "open files", "{}", text);
  } else {
    findings.add("limits.files_low", "open files", "{}: large jobs need {}", text, kEnoughFiles);
  }
}

void check_socket_buffers(const Facts& facts, Findings& findings) {
  const Bytes wanted = facts.settings.socket_buffer;
  const auto receive = facts.software.receive_buffer_max;
  const auto send = facts.software.send_buffer_max;
  if (!receive && !send) return;
  if (facts.process.may_force_buffers) {
    findings.add("limits.socket_buffers", "socket buffers",
                 "CAP_NET_ADMIN: the kernel's bounds do not apply");
    return;
  }
  const auto is_low = [&](FindingId id, const char* name, std::optional<uint64_t> bytes) {
    if (bytes.value_or(wanted) >= wanted) return false;
    findings.add(id, {name, {{"BYTES", std::to_string(wanted)}}},
                 "{} bytes, and soft:udp asks for {}", *bytes, wanted);
    return true;
  };
  const bool receive_low = is_low("limits.receive_buffer_low", "net.core.rmem_max", receive);
  const bool send_low = is_low("limits.send_buffer_low", "net.core.wmem_max", send);
  if (!receive_low && !send_low) {
    findings.add("limits.socket_buffers", "socket buffers",
                 "the kernel allows the {} bytes that soft:udp asks for", wanted);
  }
}

}  // namespace

void check_limits(const Facts& facts, Findings& findings) {
  check_memlock(facts, findings);
  check_files(facts.process, findings);
  check_socket_buffers(facts, findings);
  if (facts.process.cpu_quota && *facts.process.cpu_quota < 1) {
    findings.add("limits.cpu_quota", {"CPU quota", {{"FILE", facts.process.cpu_quota_file}}},
                 "{:.2f} of a CPU: the engine is stopped again and again",
                 *facts.process.cpu_quota);
  }
}

// --- pci: PCIe links below their devices' capability, IOMMU, bridges between NIC and GPU ---

namespace {

// The number of "16.0 GT/s PCIe"; 0 for "Unknown".
double transfers_per_second(const std::string& text) {
  const double value = std::strtod(text.c_str(), nullptr);
  return value > 0 && value < 1e6 ? value : 0;
}

void check_link(const PciDevice& device, Findings& findings) {
  if (device.link_speed.empty() || !device.link_width) return;
  const Subject subject{device.address, {{"PCI", device.address}}};
  const double speed = transfers_per_second(device.link_speed);
  // Idle GPUs lower their link's speed to save power.
  const bool slow = device.kind == PciKind::kNic && speed > 0 &&
                    speed < transfers_per_second(device.max_link_speed);
  const bool narrow = device.link_width > 0U && device.link_width < device.max_link_width;
  if (slow) {
    findings.add("pci.link_slow", subject, "{}, and the device can do {}", device.link_speed,
                 device.max_link_speed);
  }
  if (narrow) {
    findings.add("pci.link_narrow", subject, "{} lanes, and the device can use {}",
                 *device.link_width, *device.max_link_width);
  }
  if (!slow && !narrow && speed > 0) {
    findings.add("pci.link", subject, "{} x{}", device.link_speed, *device.link_width);
  }
}

// RDMA NICs and GPUs, which would access each other. Empty unless there are both.
std::vector<const PciDevice*> peers(const Facts& facts) {
  std::vector<const PciDevice*> peers;
  bool nic = false;
  bool gpu = false;
  for (const PciDevice& device : facts.pci) {
    const auto is_it = [&](const RdmaDevice& rdma) { return rdma.pci_address == device.address; };
    const bool is_nic = device.kind == PciKind::kNic && std::ranges::any_of(facts.rdma, is_it);
    if (!is_nic && device.kind != PciKind::kGpu) continue;
    peers.push_back(&device);
    (is_nic ? nic : gpu) = true;
  }
  if (!nic || !gpu) peers.clear();
  return peers;
}

bool translates(const Software& software, const PciDevice& device) {
  if (!device.iommu_type.empty()) return device.iommu_type != "identity";
  const std::string& line = software.kernel_command_line;
  return software.iommu_groups && line.find("iommu=pt") == std::string::npos &&
         line.find("iommu.passthrough=1") == std::string::npos;
}

void check_iommu(const Facts& facts, std::span<const PciDevice* const> devices,
                 Findings& findings) {
  for (const PciDevice* device : devices) {
    if (!translates(facts.software, *device)) continue;
    findings.add("pci.iommu_translates", device->address,
                 "an IOMMU translates its addresses: let the kernel pass them through");
    return;
  }
  findings.add("pci.iommu", "IOMMU", "off, or passes addresses through");
}

void check_acs(const Facts& facts, std::span<const PciDevice* const> devices, Findings& findings) {
  std::set<std::string> above;
  for (const PciDevice* device : devices) {
    above.insert(device->bridges.begin(), device->bridges.end());
  }
  bool clean = true;
  bool readable = true;
  for (const std::string& bridge : above) {
    const auto found = facts.bridges.find(bridge);
    const AcsState state = found == facts.bridges.end() ? AcsState::kUnreadable : found->second;
    readable &= state != AcsState::kUnreadable;
    if (state != AcsState::kRedirects) continue;
    clean = false;
    findings.add("pci.acs_on", {bridge, {{"PCI", bridge}}},
                 "this bridge sends traffic between NIC and GPU up to the root complex");
  }
  if (!readable) {
    findings.add("pci.acs_unknown", "ACS",
                 "the configuration of the bridges above NIC and GPU cannot be read");
  } else if (clean) {
    findings.add("pci.acs_off", "ACS", "no bridge redirects traffic between NIC and GPU");
  }
}

}  // namespace

void check_pci(const Facts& facts, Findings& findings) {
  for (const PciDevice& device : facts.pci) check_link(device, findings);
  const auto devices = peers(facts);
  if (devices.empty()) return;
  check_iommu(facts, devices, findings);
  check_acs(facts, devices, findings);
}

// --- gpu: whether NICs can reach GPU memory, and which GPUs are far from them ---

namespace {

using Version = std::pair<uint64_t, uint64_t>;

// Exporting GPU memory as dma-buf to RDMA: with NVIDIA's open kernel modules.
constexpr Version kDmabufKernel = {5, 12};

// "6.1.0-18-amd64", "2.27.5".
std::optional<Version> version_of(std::string_view text) {
  const auto parts = split(text, '.');
  if (parts.size() < 2) return std::nullopt;
  const auto major = parse_number(parts[0]);
  const auto minor = parse_number(parts[1].substr(0, parts[1].find_first_not_of("0123456789")));
  return major && minor ? std::optional(Version(*major, *minor)) : std::nullopt;
}

void check_direct(const Software& software, Findings& findings) {
  const bool open = software.nvidia_driver.find("Open Kernel Module") != std::string::npos;
  if (software.nvidia_driver.empty()) {
    findings.add("gpu.driver_missing", "driver",
                 "NVIDIA GPUs are there, and their driver is not loaded");
  } else if (open && version_of(software.kernel) >= kDmabufKernel) {
    findings.add("gpu.direct_dmabuf", "GPUDirect", "dma-buf: {}", software.nvidia_driver);
  } else if (software.has_module("nvidia_peermem")) {
    findings.add("gpu.direct_peermem", "GPUDirect", "the module nvidia_peermem is loaded");
  } else {
    findings.add("gpu.direct_off", "GPUDirect",
                 "nvidia_peermem is not loaded, and dma-buf needs Linux 5.12 and the open kernel "
                 "modules: data is copied through the host");
  }
}

void check_gpu_near(const Facts& facts, Findings& findings) {
  std::set<uint64_t> nodes;
  for (const RdmaDevice& device : facts.rdma) {
    const PciDevice* pci = facts.pci_device(device.pci_address);
    if (pci != nullptr && pci->numa_node) nodes.insert(*pci->numa_node);
  }
  if (nodes.empty()) return;
  for (const PciDevice& device : facts.pci) {
    if (device.kind != PciKind::kGpu || !device.numa_node || nodes.contains(*device.numa_node)) {
      continue;
    }
    findings.add("gpu.far", device.address,
                 "on NUMA node {}, where no RDMA device is: its data crosses the processors' link",
                 *device.numa_node);
  }
}

}  // namespace

void check_gpu(const Facts& facts, Findings& findings) {
  if (std::ranges::find(facts.pci, PciKind::kGpu, &PciDevice::kind) == facts.pci.end()) {
    findings.add("gpu.none", "GPUs", "none of NVIDIA");
    return;
  }
  check_direct(facts.software, findings);
  check_gpu_near(facts, findings);
}

// --- cpu: what makes latency vary: frequency, sleep states, NUMA distance; huge pages ---

namespace {

constexpr uint64_t kDeepIdleUs = 50;  // more than a round trip in a data centre

void check_governor(const Cpu& cpu, Findings& findings) {
  std::vector<std::string> slow;
  for (const auto& [governor, count] : cpu.governors) {
    if (governor != "performance") slow.push_back(fmt::format("{} on {} CPUs", governor, count));
  }
  if (!slow.empty()) {
    findings.add("cpu.governor_slow", "governor", "{}", fmt::join(slow, ", "));
  } else {
    findings.add("cpu.governor", "governor", "{}",
                 cpu.governors.empty() ? "the kernel does not scale frequencies" : "performance");
  }
}

void check_cpu_near(const Facts& facts, Findings& findings) {
  for (const RdmaDevice& device : facts.rdma) {
    const PciDevice* pci = facts.pci_device(device.pci_address);
    if (pci == nullptr || !pci->numa_node || facts.process.cpus.empty()) continue;
    const auto node = facts.cpu.numa_nodes.find(*pci->numa_node);
    if (node == facts.cpu.numa_nodes.end()) continue;
    const std::string number = std::to_string(node->first);
    if (overlap(node->second, facts.process.cpus)) {
      findings.add("cpu.near", device.name, "NUMA node {}, where this process may run", number);
    } else {
      findings.add("cpu.far", {device.name, {{"NODE", number}}},
                   "on NUMA node {}, and this process may run on none of its CPUs", number);
    }
  }
}

}  // namespace

void check_cpu(const Facts& facts, Findings& findings) {
  const Cpu& cpu = facts.cpu;
  check_governor(cpu, findings);
  if (cpu.deepest_idle_us.value_or(0) > kDeepIdleUs) {
    findings.add("cpu.idle_deep", "sleep states", "waking from the deepest takes {} us",
                 *cpu.deepest_idle_us);
  }
  check_cpu_near(facts, findings);
  if (!cpu.huge_pages) return;
  if (*cpu.huge_pages == 0) {
    findings.add("cpu.no_huge_pages", "huge pages", "none reserved; only DPDK needs them");
  } else {
    findings.add("cpu.huge_pages", "huge pages", "{}", *cpu.huge_pages);
  }
}

// --- software: versions, modules, NCCL, and Pacecar's own settings ---

namespace {

// The first NCCL that loads table version 11 of net plugins.
constexpr Version kNcclNeeded = {2, 28};

std::string or_unknown(const std::string& text) { return text.empty() ? "not known" : text; }

void check_nccl(const Software& software, Findings& findings) {
  const std::string& path = software.nccl;
  if (path.empty()) {
    findings.add("software.nccl_missing", "NCCL",
                 "no libnccl.so.2 in the usual folders; frameworks may bring their own");
    return;
  }
  // A name without a version, unlike libnccl.so.2.27.5, does not count.
  const auto version = version_of(path.substr(path.rfind(".so.") + 4));
  if (version && *version < kNcclNeeded) {
    findings.add("software.nccl_old", "NCCL", "{}: the plugin needs {}.{} or later", path,
                 kNcclNeeded.first, kNcclNeeded.second);
  } else {
    findings.add("software.nccl", "NCCL", "{}", path);
  }
}

}  // namespace

void check_software(const Facts& facts, Findings& findings) {
  const Software& software = facts.software;
  findings.add("software.versions", "versions", "Pacecar {}, Linux {}, {}", facts.settings.version,
               or_unknown(software.kernel), or_unknown(software.os));
  const std::string modules = fmt::format("{}", fmt::join(software.modules, ", "));
  findings.add("software.modules", "modules", "{}",
               modules.empty() ? "none for RDMA or GPUs" : modules);
  check_nccl(software, findings);
  if (!facts.settings.error.empty()) {
    findings.add("software.parameters", "parameters", "{}", facts.settings.error);
  }
  for (const std::string& warning : facts.settings.warnings) {
    findings.add("software.parameter_unknown", "parameters", "{}", warning);
  }
}

}  // namespace pacecar::preflight
