// PCIe links below their devices' capability, IOMMU, and bridges between NIC and GPU.

#include <algorithm>
#include <cstdlib>
#include <set>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {
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

}  // namespace pacecar::preflight
