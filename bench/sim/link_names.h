// Links as people name them: "leaf 0 > host 3".
#pragma once

#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/sim/topology.h"

namespace pacecar {

std::string link_name(const Topology& topology, LinkId link);
// Errors: kInvalidArgument, for nodes that are not there or not neighbours.
Result<LinkId> find_link(const Topology& topology, std::string_view name);

}  // namespace pacecar
