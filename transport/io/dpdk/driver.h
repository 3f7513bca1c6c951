// What DPDK's device interface does not tell of a driver. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/units.h"
#include "transport/io/dpdk/device_name.h"

namespace pacecar {

inline constexpr std::string_view kMemifDriver = "net_memif";
inline constexpr std::string_view kAfXdpDriver = "net_af_xdp";

struct DpdkDriver {
  std::string_view name;
  bool copies_on_send = false;   // what it is handed, before its burst call returns
  bool is_memory = false;        // frames stay in the memory of this host
  bool has_slots = false;        // of a size of its own, which limits the MTU, not what it says
  bool kernel_is_peer = false;   // its interface is the other end of the wire
  std::string_view shared = "";  // the argument that names one which it shares with the kernel
  // What comes in at its interface does not reach the kernel any more.
  bool takes_interface = false;
  bool one_pool = false;          // what is to be sent is copied unless received into the same pool
  uint32_t held_to_receive = 64;  // buffers that it takes ahead of what it returns
  uint32_t held_to_send = 1024;   // buffers of packets that are on their way, unless it copies
  Bytes room_before = 0;          // that it leaves free in front of a received frame
  Bytes most_mtu = 0;             // 0: what the device says
  std::string_view defaults = "";  // arguments, unless the first of them is given
};

// One that nothing is known of is taken for a NIC.
const DpdkDriver& dpdk_driver(std::string_view name);

// What DPDK is told: the device's name, its arguments and its driver's defaults.
std::string with_defaults(const DpdkDevice& device);

}  // namespace pacecar
