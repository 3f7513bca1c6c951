// What libfabric offers on this machine, for people.
#pragma once

#include <string>
#include <vector>

#include "transport/base/result.h"

namespace pacecar {

struct FabricProvider {
  std::string name;  // as PACECAR_NICS takes it: "ofi:tcp;ofi_rxm:eth0"
  bool usable = false;
  std::string abilities;  // or what it lacks
};

// Loads libfabric: takes some 0.2 s at the first call. Errors: kUnavailable (there is none, or this
// build has no use for it).
Result<std::vector<FabricProvider>> list_fabric_providers();

}  // namespace pacecar
