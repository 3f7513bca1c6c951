#include "tests/support/hostile_verbs/queues.h"

#include <algorithm>

namespace pacecar::hostile {

bool CompletionQueue::add(const ibv_wc& completion, bool solicited, uint64_t send, uint64_t tick,
                          uint64_t time_stamp) {
  if (held_.size() + visible_.size() >= static_cast<size_t>(verbs.cqe)) return false;
  const bool error = completion.status != IBV_WC_SUCCESS;
  const bool arrived = (completion.opcode & IBV_WC_RECV) != 0;
  const uint64_t late = behavior_.late_completions + (arrived ? behavior_.late_receives : 0);
  held_.push_back({completion, solicited || error, send, tick + late, time_stamp});
  return true;
}

bool CompletionQueue::advance(uint64_t tick) {
  const bool many = behavior_.completion_burst > 1 && held_.size() >= behavior_.completion_burst;
  const bool appear = !held_.empty() && (many || held_.front().due <= tick);
  if (!appear) return false;
  bool wakes = false;
  for (const Entry& entry : held_) {
    wakes |= armed_ == Armed::kAny || (armed_ == Armed::kSolicited && entry.solicited);
    visible_.push_back(entry);
  }
  held_.clear();
  if (wakes) armed_ = Armed::kNo;
  return wakes;
}

size_t CompletionQueue::poll(size_t most, ibv_wc* completions,
                             const std::function<void(uint32_t, uint64_t)>& on_polled) {
  const size_t count = std::min(most, visible_.size());
  for (size_t i = 0; i < count; ++i) {
    completions[i] = visible_.front().completion;
    stamp = visible_.front().stamp;
    on_polled(completions[i].qp_num, visible_.front().send);
    visible_.pop_front();
  }
  return count;
}

// Completions that are already visible raise no event: a program polls again after arming.
void CompletionQueue::arm(bool solicited_only) {
  const Armed wanted = solicited_only ? Armed::kSolicited : Armed::kAny;
  armed_ = std::max(armed_, wanted);
}

void CompletionQueue::forget(uint32_t queue_pair) {
  const auto of_it = [&](const Entry& each) { return each.completion.qp_num == queue_pair; };
  std::erase_if(held_, of_it);
  std::erase_if(visible_, of_it);
}

}  // namespace pacecar::hostile
