// Replaces open_verbs.cc in a build without libibverbs.
#include "transport/engine/open/back_ends.h"
#include "transport/engine/open/open_kinds.h"

namespace pacecar {

Result<void> find_verbs() {
  return fail(ErrorCode::kUnavailable,
              "this build has no RDMA NICs: install libibverbs-dev and build again");
}

std::vector<NicCandidate> list_verbs_nics() { return {}; }

Result<OpenedNic> open_verbs_nic(const NicCandidate& /*candidate*/, const Params& /*params*/,
                                 const LogSink& /*log*/) {
  return tl::unexpected(find_verbs().error());
}

}  // namespace pacecar
