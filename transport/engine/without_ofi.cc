// Stands in for open_ofi.cc in a build without libfabric.
#include "transport/engine/open_ofi.h"

namespace pacecar {

std::vector<FabricProvider> list_fabric_providers() { return {}; }

Result<OpenedNic> open_ofi_nic(const NicCandidate& /*candidate*/, const Params& /*params*/,
                               const LogSink& /*log*/) {
  return fail(ErrorCode::kUnavailable,
              "this build has no libfabric: install libfabric-dev and build again");
}

}  // namespace pacecar
