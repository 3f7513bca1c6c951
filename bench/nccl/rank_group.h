// The ranks of a job on one host: one process each, with a board in shared memory. When a rank
// fails, the others end with an error.
#pragma once

#include <functional>

#include "bench/nccl/board.h"

namespace pacecar::nccl {

// Runs `body` in one process per rank; each prints the error that `body` throws. True when all
// ranks succeeded.
using RankBody = std::function<void(Board& board, int rank)>;
bool run_ranks(int ranks, const RankBody& body);

}  // namespace pacecar::nccl
