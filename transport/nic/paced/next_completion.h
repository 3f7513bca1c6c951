// next_completion: the completions of a queue pair of a NIC that paces whole writes.
//
// Pure. Thread rule: the queue pair's.
#pragma once

#include "transport/nic/nic.h"

namespace pacecar {

// The next completion: of work requests in the order of posting, and last kBroken if the queue pair
// is broken. False: none now. A `QueuePair` has `id`, `work` (WorkQueue), `state`, `broken_by` and
// `broken_reported`.
template <typename QueuePair>
bool next_completion(QueuePair& qp, Completion* completion) {
  *completion = {.queue_pair = qp.id, .kind = CompletionKind::kSent};
  if (qp.broken_reported) return false;
  WorkRequest request;
  while (qp.work.pop_completed(&request, &completion->status)) {
    if (!request.signaled && completion->status == CompletionStatus::kOk) continue;
    completion->work_request = request.id;
    return true;
  }
  if (qp.state != QueuePair::State::kBroken) return false;
  qp.broken_reported = true;
  completion->kind = CompletionKind::kBroken;
  completion->status = qp.broken_by;
  return true;
}

}  // namespace pacecar
