// Whether a configuration makes sense. Pure; any thread.
#pragma once

#include "transport/base/result.h"
#include "transport/sim/fabric_config.h"
#include "transport/sim/topology.h"

namespace pacecar {

// Errors: kInvalidArgument, one sentence that names the setting and its cure.
Result<void> check_fabric_config(const FabricConfig& config, const Topology& topology);

}  // namespace pacecar
