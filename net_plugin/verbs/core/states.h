// Which state changes ibv_modify_qp allows, and which attributes each takes (InfiniBand
// Architecture Specification vol. 1, 10.3.1 and table 91 of 11.2.5.2). Pure functions; any thread.
#pragma once

#include <infiniband/verbs.h>

namespace pacecar::ibverbs {

// Whether `mask` (ibv_qp_attr_mask) allows the change. From a state to itself attributes change.
bool allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

}  // namespace pacecar::ibverbs
