// Makes a NIC's writes to GPU memory visible to the GPU's kernels, where the NIC cannot read that
// memory after its own writes.
//
// Thread rule: any thread.
#pragma once

#include "gdr/primary_context.h"
#include "transport/base/result.h"

namespace pacecar {

// Returns when all that a NIC has written to the GPU so far is visible there. Errors: kSystem.
Result<void> flush_writes(const PrimaryContext& context);

}  // namespace pacecar
