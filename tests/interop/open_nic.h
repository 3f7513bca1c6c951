// Opens a NIC by its name, for programs that need nothing but a NIC.
#pragma once

#include <memory>
#include <string>

#include "transport/nic/nic_port.h"

namespace pacecar::test {

// "soft:udp:eth0" or "soft:raw:eth0", in standard RoCE v2 unless PACECAR_WIRE says otherwise.
// Errors: as opening the NIC, and kInvalidArgument for another kind.
Result<std::unique_ptr<NicPort>> open_nic(const std::string& name);

}  // namespace pacecar::test
