// Which of the libraries that are loaded on demand this machine has. Each error names what is
// missing, and its cure.
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

// Loads libfabric: takes some 0.2 s at the first call. Errors: kUnavailable (not installed, or not
// in this build).
[[gnu::visibility("default")]] Result<std::vector<FabricProvider>> list_fabric_providers();

// Whether RDMA NICs could be used: loads libibverbs. Errors: kUnavailable, as above.
[[gnu::visibility("default")]] Result<void> find_verbs();

// Whether soft:dpdk:... could be used: loads DPDK. Errors: kUnavailable, as above.
[[gnu::visibility("default")]] Result<void> find_dpdk();

}  // namespace pacecar
