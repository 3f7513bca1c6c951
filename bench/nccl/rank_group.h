// The ranks of a job on one host as processes, and their board in memory that they share. A rank
// that fails ends the others.
#pragma once

#include <functional>

#include "bench/nccl/board.h"

namespace pacecar::nccl {

// Runs `body` in one process per rank and prints what they throw. True when all ranks succeeded.
using RankBody = std::function<void(Board& board, int rank)>;
bool run_ranks(int ranks, const RankBody& body);

}  // namespace pacecar::nccl
