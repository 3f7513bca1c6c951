// Stands in for open_verbs.cc in a build without libibverbs.
#include "transport/engine/open_verbs.h"

namespace pacecar {

std::vector<NicCandidate> list_verbs_nics() { return {}; }

Result<OpenedNic> open_verbs_nic(const NicCandidate& /*candidate*/, const Params& /*params*/,
                                 const LogSink& /*log*/) {
  return fail(ErrorCode::kUnavailable,
              "this build has no RDMA NICs: install libibverbs-dev and build again");
}

}  // namespace pacecar
