// Properties of drivers that DPDK's device interface does not report. Pure. Thread rule: any
// thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "transport/base/units.h"

namespace pacecar {

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

}  // namespace pacecar
