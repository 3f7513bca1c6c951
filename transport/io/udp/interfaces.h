// This machine's network interfaces, as the kernel and /sys now describe them. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/wire/packet.h"

namespace pacecar {

struct InterfaceInfo {
  std::string name;
  std::vector<Address> addresses;  // port 0; addresses that may vanish (IPv6 privacy) come last
  Bytes mtu = 0;
  bool up = false;
  bool running = false;  // with a carrier
  bool loopback = false;
  bool bridge = false;   // mostly of containers or virtual machines of this host
  Rate speed;            // 0: unknown, or a virtual device
  std::string pci_path;  // real path of its PCI device in /sys; empty for one that is not on PCI
  uint64_t guid = 0;     // EUI-64 made from the MAC address, as RoCE NICs do
};

// EUI-64 from a 48-bit MAC address (RFC 4291, appendix A).
uint64_t guid_from_mac(const std::array<uint8_t, 6>& mac);

// Error: kSystem, as too few descriptors are left.
Result<std::vector<InterfaceInfo>> list_interfaces();
// The interface of an address's label: "eth0" of "eth0:1".
inline std::string name_of_label(std::string_view label) {
  return std::string(label.substr(0, label.find(':')));
}

// Error: kNotFound; the message lists the interfaces. Or that of list_interfaces.
Result<InterfaceInfo> find_interface(const std::string& name);

// The address that a NIC on this interface uses: IPv4 first, of loopback one that other hosts may
// reach; else global IPv6, else link-local.
std::optional<Address> preferred_address(const InterfaceInfo& interface);
// As preferred_address(), but IPv6 only.
std::optional<Address> preferred_ipv6_address(const InterfaceInfo& interface);

}  // namespace pacecar
