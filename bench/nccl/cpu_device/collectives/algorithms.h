// What a block does for one work. Arguments are used until a task ends.
#pragma once

#include <vector>

#include "bench/nccl/cpu_device/collectives/block.h"
#include "bench/nccl/cpu_device/collectives/function_table.h"
#include "bench/nccl/cpu_device/collectives/reduction.h"
#include "bench/nccl/cpu_device/collectives/work.h"
#include "bench/nccl/cpu_device/coroutine.h"

namespace pacecar::nccl::cpu {

// All collectives, over a ring, a tree or by PAT.
Task collective(const Block& block, const Function& function, const CollectiveWork& work);

// PAT (parallel aggregated trees): all-gather and reduce-scatter of ranks with a host each, in
// about log2 of their number steps where a ring has as many steps as ranks.
Task pat(const Block& block, Operation operation, const CollectiveWork::Part& part,
         const Arithmetic& arithmetic, const char* input, char* output);

// Broadcasts of different roots, in turns (AllGatherV).
Task broadcasts(const Block& block, Protocol protocol, const std::vector<BroadcastWork>& works);

// All sends and receives of a batch, at the same time.
Task send_receive(const Block& block, const std::vector<SendReceiveWork>& works);

}  // namespace pacecar::nccl::cpu
