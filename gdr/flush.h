// After a NIC has written into a GPU's memory: what makes the GPU's kernels see it.
//
// Thread rule: any thread.
#pragma once

#include "gdr/gpu.h"
#include "gdr/primary_context.h"
#include "transport/base/result.h"

namespace pacecar {

enum class FlushWay : uint8_t {
  kNone,    // the GPU sees the writes in their order
  kDriver,  // flush_writes
  kRead,    // the NIC reads from the same memory: its read pushes the writes before it
};

FlushWay flush_way(const Gpu& gpu);

// Returns when all that a NIC has written to the GPU so far is visible there. Errors: kSystem.
Result<void> flush_writes(const PrimaryContext& context);

}  // namespace pacecar
