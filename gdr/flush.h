// After a NIC has written into a GPU's memory: what makes the GPU's kernels see it, where the NIC
// cannot read from that memory behind its own writes.
//
// Thread rule: any thread.
#pragma once

#include "gdr/primary_context.h"
#include "transport/base/result.h"

namespace pacecar {

// Returns when all that a NIC has written to the GPU so far is visible there. Errors: kSystem.
Result<void> flush_writes(const PrimaryContext& context);

}  // namespace pacecar
