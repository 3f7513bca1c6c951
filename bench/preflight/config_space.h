// The Access Control Services capability in a PCIe function's configuration space. Pure.
#pragma once

#include <string_view>

#include "bench/preflight/facts.h"

namespace pacecar::preflight {

// `config` is what the kernel's file `config` holds: 4096 bytes, or only 64 for those who are not
// root. Does the bridge redirect requests or completions between peers upstream?
// PCI Express Base Specification, Access Control Services Extended Capability.
AcsState acs_state(std::string_view config);

}  // namespace pacecar::preflight
