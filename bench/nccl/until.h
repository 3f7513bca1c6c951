// How a rank waits while others may fail.
#pragma once

#include <sched.h>

#include "bench/nccl/board.h"
#include "bench/nccl/value_or_throw.h"

namespace pacecar::nccl {

// Calls step() until done(). Where a step has moved nothing, others may have the processor; the
// failure of another rank is thrown.
template <typename Done, typename Step>
void until(Board& board, const Done& done, const Step& step) {
  while (!done()) {
    if (step()) continue;
    value_or_throw(board.others_are_well());
    sched_yield();
  }
}

}  // namespace pacecar::nccl
