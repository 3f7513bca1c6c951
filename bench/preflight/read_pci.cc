// NICs, GPUs and the bridges above them, from /sys/bus/pci.
#include <algorithm>

#include "bench/preflight/read_facts.h"

namespace pacecar::preflight {
namespace {

constexpr uint64_t kVendorNvidiaGpu = 0x10de;

// PCI Express Base Specification, Access Control Services Extended Capability.
constexpr size_t kExtendedStart = 0x100;
constexpr size_t kMaxCapabilities = (4096 - kExtendedStart) / 4;
constexpr uint32_t kAcsId = 0x000d;
constexpr size_t kAcsControl = 6;
// P2P Request Redirect, P2P Completion Redirect, Upstream Forwarding.
constexpr uint32_t kRedirects = 0x04 | 0x08 | 0x10;

uint32_t little_endian(std::string_view bytes, size_t offset, size_t size) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[offset + i])) << (8 * i);
  }
  return value;
}

PciKind kind_of(uint64_t vendor, uint64_t device_class) {
  const uint64_t base = device_class >> 16;  // 0xBBSSPP: base class, subclass, interface
  if (base == 0x02) return PciKind::kNic;
  return base == 0x03 && vendor == kVendorNvidiaGpu ? PciKind::kGpu : PciKind::kOther;
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
  device.vendor = parse_number(tree.text(folder + "/vendor"), 16).value_or(0);
  device.kind = kind_of(device.vendor, parse_number(tree.text(folder + "/class"), 16).value_or(0));
  if (device.kind == PciKind::kOther) return device;
  device.numa_node = tree.number(folder + "/numa_node");  // -1, not known, is no number
  device.link_speed = tree.text(folder + "/current_link_speed");
  device.max_link_speed = tree.text(folder + "/max_link_speed");
  device.link_width = tree.number(folder + "/current_link_width");
  device.max_link_width = tree.number(folder + "/max_link_width");
  device.iommu_type = tree.text(folder + "/iommu_group/type");
  device.bridges = bridges_above(tree, folder);
  return device;
}

}  // namespace

AcsState acs_state(std::string_view config) {
  if (config.size() <= kExtendedStart) return AcsState::kUnreadable;
  size_t offset = kExtendedStart;
  // The list is written by a device: it may be truncated or have a loop.
  for (size_t i = 0; i < kMaxCapabilities; ++i) {
    if (offset < kExtendedStart || offset + kAcsControl + 2 > config.size()) break;
    const uint32_t header = little_endian(config, offset, 4);
    if ((header & 0xffff) == kAcsId) {
      const uint32_t control = little_endian(config, offset + kAcsControl, 2);
      return (control & kRedirects) == 0 ? AcsState::kOff : AcsState::kRedirects;
    }
    offset = header >> 20;
  }
  return AcsState::kOff;
}

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
