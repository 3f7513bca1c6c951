// PAT (parallel aggregated trees): all-gather and reduce-scatter of ranks with a host each, in
// about log2 of their number steps where a ring has as many steps as ranks.
#pragma once

#include "bench/nccl/cpu_device/collectives/block.h"
#include "bench/nccl/cpu_device/collectives/function_table.h"
#include "bench/nccl/cpu_device/collectives/reduction.h"
#include "bench/nccl/cpu_device/collectives/work.h"
#include "bench/nccl/cpu_device/coroutine.h"

namespace pacecar::nccl::cpu {

// Arguments are used until the task ends.
Task pat(const Block& block, Operation operation, const CollectiveWork::Part& part,
         const Arithmetic& arithmetic, const char* input, char* output);

}  // namespace pacecar::nccl::cpu
