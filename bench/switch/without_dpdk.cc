// Stands in for dpdk_frames.cc in a build without DPDK.
#include "bench/switch/dpdk_frames.h"

namespace pacecar {

Result<std::unique_ptr<FramePort>> open_dpdk_frames(const std::string& /*device*/,
                                                    const std::string& /*arguments*/,
                                                    const LogSink& /*log*/) {
  return fail(ErrorCode::kUnavailable,
              "this build has no DPDK: install libdpdk-dev and build again");
}

}  // namespace pacecar
