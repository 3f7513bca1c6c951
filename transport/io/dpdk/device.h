// The text after "soft:dpdk:": a device and its arguments, of which some are ours and the others
// its driver's; and properties of drivers that DPDK's device interface does not report. Pure.
// Thread rule: any thread.
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
  std::string name;       // a PCI address, or a virtual device: "net_memif0"
  std::string arguments;  // of the driver: "role=client,id=0"
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
  // The driver of a virtual device, "net_memif" for "net_memif0".
  std::string_view driver() const;
  // The value of a driver's argument.
  std::optional<std::string_view> argument(std::string_view key) const;
};

// Errors: kInvalidArgument for an invalid argument of ours, or a device without a name.
Result<DpdkDevice> parse_dpdk_device(std::string_view name, std::string_view arguments);

inline constexpr std::string_view kMemifDriver = "net_memif";
inline constexpr std::string_view kAfXdpDriver = "net_af_xdp";

struct DpdkDriver {
  std::string_view name;
  bool copies_on_send = false;  // before its burst call returns
  bool is_memory = false;       // frames stay in the memory of this host
  // It has packet slots of a fixed size, which limits the MTU below the reported one.
  bool has_slots = false;
  bool kernel_is_peer = false;   // the device's interface is the other end of the wire
  std::string_view shared = "";  // the argument that names an interface shared with the kernel
  // Packets that arrive at the interface no longer reach the kernel.
  bool takes_interface = false;
  bool one_pool = false;           // sent buffers are copied unless they are of the receive pool
  uint32_t held_to_receive = 64;   // buffers that it takes before it returns any
  uint32_t held_to_send = 1024;    // buffers of packets being sent, unless it copies
  Bytes room_before = 0;           // that it leaves free in front of a received frame
  Bytes most_mtu = 0;              // 0: from the device
  std::string_view defaults = "";  // arguments, unless the first of them is given
};

// Unknown drivers are treated as NICs.
const DpdkDriver& dpdk_driver(std::string_view name);

// The device's name, its arguments and its driver's defaults, for DPDK.
std::string with_defaults(const DpdkDevice& device);

}  // namespace pacecar
