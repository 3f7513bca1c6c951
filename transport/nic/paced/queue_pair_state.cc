#include "transport/nic/paced/queue_pair_state.h"

namespace pacecar {

bool QueuePairState::pop_completion(Completion* completion) {
  *completion = {.queue_pair = id, .kind = CompletionKind::kSent};
  if (broken_reported) return false;
  WorkRequest request;
  while (work.pop_completed(&request, &completion->status)) {
    if (!request.signaled && completion->status == CompletionStatus::kOk) continue;
    completion->work_request = request.id;
    return true;
  }
  if (state != State::kBroken) return false;
  broken_reported = true;
  completion->kind = CompletionKind::kBroken;
  completion->status = broken_by;
  return true;
}

}  // namespace pacecar
