// Libraries loaded on demand, and whether this machine has them. Errors name library and cure.
#pragma once

#include <string>
#include <vector>

#include "transport/base/result.h"

namespace pacecar {

struct FabricProvider {
  std::string name;  // for PACECAR_NICS: "ofi:tcp;ofi_rxm:eth0"
  std::string abilities;
};

// Loads libfabric: 0.2 s at the first call. Errors: kUnavailable (not installed, or not built in).
[[gnu::visibility("default")]] Result<std::vector<FabricProvider>> list_fabric_providers();

// Loads libibverbs, which RDMA NICs need. Errors: kUnavailable, as above.
[[gnu::visibility("default")]] Result<void> find_verbs();

// Loads DPDK, which soft:dpdk:... needs. Errors: kUnavailable, as above.
[[gnu::visibility("default")]] Result<void> find_dpdk();

}  // namespace pacecar
