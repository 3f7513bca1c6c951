// Completions of a queue pair of a NIC that paces whole writes.
#pragma once

#include "transport/nic/nic.h"

namespace pacecar {

// The next completion: of a work request, in the order of posting, or finally kBroken. False: none
// for now. A `QueuePair` has `id`, `work` (WorkQueue), `state`, `broken_by` and `broken_reported`.
template <typename QueuePair>
bool next_completion(QueuePair& qp, Completion* told) {
  *told = {.queue_pair = qp.id, .kind = CompletionKind::kSent};
  if (qp.broken_reported) return false;
  WorkRequest request;
  while (qp.work.pop_completed(&request, &told->status)) {
    if (!request.signaled && told->status == CompletionStatus::kOk) continue;
    told->work_request = request.id;
    return true;
  }
  if (qp.state != QueuePair::State::kBroken) return false;
  qp.broken_reported = true;
  told->kind = CompletionKind::kBroken;
  told->status = qp.broken_by;
  return true;
}

}  // namespace pacecar
