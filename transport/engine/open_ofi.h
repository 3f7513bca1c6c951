// NICs on libfabric's providers. In a build without libfabric there are none.
#pragma once

#include <string>
#include <vector>

#include "transport/engine/open_nic.h"

namespace pacecar {

// What a provider of libfabric can do for Pacecar, for people.
struct FabricProvider {
  std::string name;  // as PACECAR_NICS takes it: "ofi:tcp;ofi_rxm:eth0"
  bool usable = false;
  std::string abilities;  // or what it lacks
};
// Empty without libfabric. Loads it: takes some 0.2 s at the first call.
std::vector<FabricProvider> list_fabric_providers();

// Errors: kUnavailable (no libfabric), kNotFound (no such provider or domain), kInvalidArgument (it
// lacks something), and what it refuses.
Result<OpenedNic> open_ofi_nic(const NicCandidate& candidate, const Params& params,
                               const LogSink& log);

}  // namespace pacecar
