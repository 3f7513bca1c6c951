// Replaces open_ofi.cc in a build without libfabric.
#include "transport/engine/open/back_ends.h"
#include "transport/engine/open/open_kinds.h"

namespace pacecar {
namespace {

tl::unexpected<Error> without_libfabric() {
  return fail(ErrorCode::kUnavailable,
              "this build has no libfabric: install libfabric-dev and build again");
}

}  // namespace

Result<std::vector<FabricProvider>> list_fabric_providers() { return without_libfabric(); }

Result<OpenedNic> open_ofi_nic(const NicCandidate& /*candidate*/, const Params& /*params*/,
                               const LogSink& /*log*/) {
  return without_libfabric();
}

}  // namespace pacecar
