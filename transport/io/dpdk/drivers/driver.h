// Properties of drivers that DPDK's device interface does not report. Pure; any thread.
#pragma once

#include <string_view>

#include "transport/base/units.h"

namespace pacecar {

struct DpdkDriver {
  std::string_view name;
  bool copies_on_send = false;  // before its burst call returns
  bool is_memory = false;       // frames stay in the memory of this host
  // It has packet slots of a fixed size, which limits the MTU below the reported one.
  bool has_slots = false;
  // It registers a handler of link changes in any case; only with link interrupts it removes it.
  bool needs_link_interrupts = false;
  bool kernel_is_peer = false;     // the device's interface is the other end of the wire
  std::string_view shared = "";    // the argument that names an interface shared with the kernel
  Bytes room_before = 0;           // that it leaves free in front of a received frame
  std::string_view defaults = "";  // arguments, unless the first of them is given
};

const DpdkDriver& dpdk_driver(std::string_view name);  // Unknown drivers are treated as NICs.

}  // namespace pacecar
