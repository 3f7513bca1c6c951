// The text after "soft:dpdk:": a device and its arguments, some for us and the others for its
// driver. Pure. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/wire/packet.h"

namespace pacecar {

struct DpdkDevice {
  std::string name;       // a PCI address, or a virtual device: "net_vhost0"
  std::string arguments;  // of the driver: "iface=/run/a,client=1"
  std::optional<Address> address = std::nullopt;    // address=192.0.2.1, or address=192.0.2.1/24
  std::optional<uint8_t> link_bits = std::nullopt;  // what follows the '/'
  std::optional<Address> gateway = std::nullopt;    // gateway=192.0.2.254
  std::optional<uint16_t> vlan = std::nullopt;      // vlan=100
  std::optional<Bytes> mtu = std::nullopt;          // mtu=9000
  std::string bootstrap;                            // bootstrap=eth0

  bool is_pci() const;
  // Whether the prefix of the device's own address, among these arguments, covers `to`.
  bool names_on_link(const Address& own, const Address& to) const;
  // By these arguments, for a device with this address of its own: the gateway to `to`, or `to`
  // itself if it is on the link, which all addresses are without a gateway.
  Address next_hop(const Address& own, const Address& to) const;
  std::string_view driver() const;  // The driver of a virtual device, "net_vhost" for "net_vhost0".
  std::optional<std::string_view> argument(std::string_view key) const;
};

// Errors: kInvalidArgument for an invalid argument of ours, or a device without a name.
Result<DpdkDevice> parse_dpdk_device(std::string_view name, std::string_view arguments);

// The device's name, its arguments and its driver's defaults, for DPDK.
std::string with_defaults(const DpdkDevice& device);

}  // namespace pacecar
