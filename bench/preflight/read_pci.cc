// NICs, GPUs and the bridges above them, from /sys/bus/pci.
#include <algorithm>

#include "bench/preflight/config_space.h"
#include "bench/preflight/read_facts.h"

namespace pacecar::preflight {
namespace {

constexpr uint64_t kVendorNvidiaGpu = 0x10de;

PciKind kind_of(uint64_t vendor, uint64_t device_class) {
  const uint64_t base = device_class >> 16;  // 0xBBSSPP: base class, subclass, interface
  if (base == 0x02) return PciKind::kNic;
  return base == 0x03 && vendor == kVendorNvidiaGpu ? PciKind::kGpu : PciKind::kOther;
}

std::optional<uint64_t> hexadecimal(const HostTree& tree, const std::string& path) {
  const auto text = tree.text(path);
  return text ? parse_number(*text, 16) : std::nullopt;
}

std::vector<std::string> bridges_above(const HostTree& tree, const std::string& folder) {
  std::vector<std::string> bridges = tree.resolved_parts(folder);
  if (!bridges.empty()) bridges.pop_back();  // the device itself
  std::erase_if(bridges, [](const std::string& part) { return !is_pci_address(part); });
  return bridges;
}

PciDevice read_device(const HostTree& tree, const std::string& address) {
  const std::string folder = "sys/bus/pci/devices/" + address;
  PciDevice device;
  device.address = address;
  device.vendor = hexadecimal(tree, folder + "/vendor").value_or(0);
  device.kind = kind_of(device.vendor, hexadecimal(tree, folder + "/class").value_or(0));
  if (device.kind == PciKind::kOther) return device;
  device.numa_node = tree.number(folder + "/numa_node");  // -1, not known, is no number
  device.link_speed = tree.text(folder + "/current_link_speed").value_or("");
  device.max_link_speed = tree.text(folder + "/max_link_speed").value_or("");
  device.link_width = tree.number(folder + "/current_link_width");
  device.max_link_width = tree.number(folder + "/max_link_width");
  device.iommu_type = tree.text(folder + "/iommu_group/type").value_or("");
  device.bridges = bridges_above(tree, folder);
  return device;
}

}  // namespace

void read_pci(const HostTree& tree, Facts& facts) {
  for (const std::string& address : tree.names("sys/bus/pci/devices")) {
    PciDevice device = read_device(tree, address);
    if (device.kind == PciKind::kOther) continue;
    for (const std::string& bridge : device.bridges) {
      if (facts.bridges.contains(bridge)) continue;
      const auto config = tree.bytes("sys/bus/pci/devices/" + bridge + "/config");
      facts.bridges[bridge] = acs_state(config.value_or(""));
    }
    facts.pci.push_back(std::move(device));
  }
}

}  // namespace pacecar::preflight
