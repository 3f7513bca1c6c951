// RDMA devices, their ports and GIDs, and network interfaces, from /sys/class; NICs, GPUs and the
// bridges above them, from /sys/bus/pci.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/preflight/kernel_probes.h"
#include "bench/preflight/read_facts.h"

namespace pacecar::preflight {
namespace {

constexpr size_t kMaxGids = 1024;

// Counters of drivers (mlx5, mlx4, bnxt_re, rxe) that say that packets were lost on the way.
constexpr std::array<std::string_view, 7> kLossCounters = {
    "implied_nak_seq_err", "local_ack_timeout_err", "out_of_seq_request", "out_of_sequence",
    "packet_seq_err",      "rcvd_seq_err",          "retry_exceeded_err"};

// "4: ACTIVE" without its number.
std::string state_name(const std::string& text) {
  const size_t colon = text.find(':');
  return std::string(colon == std::string::npos ? trim(text)
                                                : trim(std::string_view(text).substr(colon + 1)));
}

// "fe80:0000:...": eight groups of hexadecimal digits.
std::optional<std::array<uint8_t, 16>> parse_gid(const std::string& text) {
  std::array<uint8_t, 16> address{};
  if (inet_pton(AF_INET6, text.c_str(), address.data()) != 1) return std::nullopt;
  return address;
}

std::vector<Gid> read_gids(const HostTree& tree, const std::string& port) {
  std::vector<Gid> gids;
  for (const std::string& name : tree.names(port + "/gids")) {
    const auto index = parse_number(name);
    const auto address = parse_gid(tree.text(port + "/gids/" + name));
    if (!index || !address || *address == std::array<uint8_t, 16>{}) continue;
    if (gids.size() == kMaxGids) break;
    gids.push_back({.index = *index,
                    .roce_v2 = tree.text(port + "/gid_attrs/types/" + name) == "RoCE v2",
                    .address = *address,
                    .netdev = tree.text(port + "/gid_attrs/ndevs/" + name)});
  }
  std::ranges::sort(gids, {}, &Gid::index);
  return gids;
}

Counters read_losses(const HostTree& tree, const std::string& port) {
  Counters counters;
  for (const std::string_view name : kLossCounters) {
    const auto value = tree.number(fmt::format("{}/hw_counters/{}", port, name));
    if (value) counters[std::string(name)] = *value;
  }
  return counters;
}

RdmaPort read_port(const HostTree& tree, const std::string& device, uint64_t number) {
  const std::string folder = "sys/class/infiniband/" + device;
  const std::string path = fmt::format("{}/ports/{}", folder, number);
  RdmaPort port;
  port.device = device;
  port.number = number;
  port.ethernet = tree.text(path + "/link_layer") == "Ethernet";
  port.state = state_name(tree.text(path + "/state"));
  port.phys_state = state_name(tree.text(path + "/phys_state"));
  port.rate = tree.text(path + "/rate");
  port.gids = read_gids(tree, path);
  for (const Gid& gid : port.gids) {
    if (port.netdev.empty()) port.netdev = gid.netdev;
  }
  if (port.netdev.empty()) port.netdev = tree.text(folder + "/parent");
  const auto below = tree.names(folder + "/device/net");
  if (port.netdev.empty() && !below.empty()) port.netdev = below.front();
  port.default_tos = tree.number(
      fmt::format("sys/kernel/config/rdma_cm/{}/ports/{}/default_roce_tos", device, number));
  port.forced_traffic_class = tree.text(fmt::format("{}/tc/{}/traffic_class", folder, number));
  port.losses = read_losses(tree, path);
  return port;
}

// The device node: uverbs0 in sys/class/infiniband_verbs is of the device that its `ibdev` names.
std::string node_of(const HostTree& tree, const std::string& device) {
  for (const std::string& name : tree.names("sys/class/infiniband_verbs")) {
    if (tree.text("sys/class/infiniband_verbs/" + name + "/ibdev") == device) {
      return "dev/infiniband/" + name;
    }
  }
  return "";
}

// One bit per priority whose file holds 1.
std::optional<uint8_t> read_priorities(const HostTree& tree, const std::string& folder) {
  std::optional<uint8_t> enabled;
  for (unsigned priority = 0; priority < 8; ++priority) {
    const auto value = tree.number(fmt::format("{}/{}", folder, priority));
    if (!value) continue;
    enabled = static_cast<uint8_t>(enabled.value_or(0) | (*value == 0 ? 0U : 1U << priority));
  }
  return enabled;
}

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
  device.numa_node = tree.number(folder + "/numa_node");  // nullopt for -1: not known
  device.link_speed = tree.text(folder + "/current_link_speed");
  device.max_link_speed = tree.text(folder + "/max_link_speed");
  device.link_width = tree.number(folder + "/current_link_width");
  device.max_link_width = tree.number(folder + "/max_link_width");
  device.iommu_type = tree.text(folder + "/iommu_group/type");
  device.bridges = bridges_above(tree, folder);
  return device;
}

}  // namespace

std::vector<RdmaDevice> read_rdma(const HostTree& tree) {
  std::vector<RdmaDevice> devices;
  for (const std::string& name : tree.names("sys/class/infiniband")) {
    const std::string folder = "sys/class/infiniband/" + name;
    RdmaDevice device;
    device.name = name;
    device.firmware = tree.text(folder + "/fw_ver");
    device.node_guid = tree.text(folder + "/node_guid");
    // A software device may point to the hardware below it; it has a file `parent`.
    const std::string address = tree.link_name(folder + "/device").value_or("");
    if (is_pci_address(address) && !tree.exists(folder + "/parent")) {
      device.pci_address = address;
      device.driver = tree.link_name(folder + "/device/driver").value_or("");
    }
    device.node = node_of(tree, name);
    if (!device.node.empty()) device.open_error = tree.try_open(device.node);
    for (const std::string& port : tree.names(folder + "/ports")) {
      if (const auto number = parse_number(port)) {
        device.ports.push_back(read_port(tree, name, *number));
      }
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<Netdev> read_netdevs(const HostTree& tree, bool live) {
  std::vector<Netdev> netdevs;
  for (const std::string& name : tree.names("sys/class/net")) {
    const std::string folder = "sys/class/net/" + name;
    Netdev netdev;
    netdev.name = name;
    netdev.mtu = tree.number(folder + "/mtu").value_or(0);
    netdev.up = tree.text(folder + "/operstate") == "up";
    netdev.virtual_device = !tree.exists(folder + "/device");
    netdev.ecn_notify = read_priorities(tree, folder + "/ecn/roce_np/enable");
    netdev.ecn_react = read_priorities(tree, folder + "/ecn/roce_rp/enable");
    if (live) netdev.pfc = ask_pfc(name);
    if (live) netdev.pauses = ask_statistics(name);
    std::erase_if(netdev.pauses, [](const auto& counter) {
      return !counter.first.starts_with("rx_prio") || !counter.first.ends_with("_pause");
    });
    netdevs.push_back(std::move(netdev));
  }
  return netdevs;
}

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
