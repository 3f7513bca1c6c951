// Which NICs a process uses: PACECAR_NICS against what the machine has.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/udp/interfaces.h"

namespace pacecar {

// `list` is a comma list of soft:udp:NAME, NAME (short for it), soft:raw:NAME (raw sockets) and
// ^NAME (not this one). Without a positive entry: every interface that is up, has an address and is
// not the loopback; the loopback when there is no other. Errors: kInvalidArgument for an entry of a
// kind that this version does not have, kNotFound for an interface that is not there or has no
// address, or when nothing is left.
Result<std::vector<InterfaceInfo>> choose_interfaces(std::string_view list,
                                                     std::span<const InterfaceInfo> interfaces);

}  // namespace pacecar
