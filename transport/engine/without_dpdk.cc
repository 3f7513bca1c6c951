// Stands in for open_dpdk.cc in a build without DPDK.
#include "transport/engine/open_dpdk.h"

namespace pacecar {

Result<OpenedNic> open_dpdk_nic(const NicCandidate& /*candidate*/, const Params& /*params*/,
                                const LogSink& /*log*/) {
  return fail(ErrorCode::kUnavailable,
              "this build has no DPDK: install libdpdk-dev and build again");
}

}  // namespace pacecar
