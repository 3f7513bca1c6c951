// What a block does for one work.
#pragma once

#include <vector>

#include "bench/nccl/cpu_device/collectives/block.h"
#include "bench/nccl/cpu_device/collectives/function_table.h"
#include "bench/nccl/cpu_device/collectives/work.h"
#include "bench/nccl/cpu_device/coroutine.h"

namespace pacecar::nccl::cpu {

// All collectives, over a ring, a tree or by PAT. Arguments are used until the task ends.
Task collective(const Block& block, const Function& function, const CollectiveWork& work);

// Broadcasts of different roots, in turns (AllGatherV).
Task broadcasts(const Block& block, Protocol protocol, const std::vector<BroadcastWork>& works);

// All sends and receives of a batch, at the same time.
Task send_receive(const Block& block, const std::vector<SendReceiveWork>& works);

}  // namespace pacecar::nccl::cpu
