// Which changes of a queue pair's state ibv_modify_qp allows, and which attributes each takes
// (InfiniBand Architecture Specification vol. 1, 10.3.1 and table 91 of 11.2.5.2).
//
// Pure functions; any thread.
#pragma once

#include <infiniband/verbs.h>

#include <optional>

namespace pacecar::ibverbs {

struct Transition {
  int required = 0;  // of ibv_qp_attr_mask, without IBV_QP_STATE
  int optional = 0;
};

// nullopt: not allowed. From a state to itself: only attributes change.
std::optional<Transition> transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to);

// Whether `mask` is right for the change.
bool allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

}  // namespace pacecar::ibverbs
