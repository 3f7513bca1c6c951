#include "gdr/flush.h"

namespace pacecar {

Result<void> flush_writes(const PrimaryContext& context) {
  const PrimaryContext::Current current(context);
  const cuda::Status status =
      context.driver()->flush_writes(cuda::kFlushTargetCurrentContext, cuda::kFlushScopeOwner);
  if (status == cuda::kSuccess) return {};
  return tl::unexpected(context.driver().error("cuFlushGPUDirectRDMAWrites", status,
                                               "look at the kernel's log (dmesg) for the GPU"));
}

}  // namespace pacecar
