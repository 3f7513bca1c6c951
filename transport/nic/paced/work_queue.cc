#include "transport/nic/paced/work_queue.h"

#include <algorithm>

namespace pacecar {

size_t WorkQueue::post(std::span<const WorkRequest> work_requests) {
  const size_t count = std::min(work_requests.size(), entries_.capacity() - entries_.size());
  for (const WorkRequest& request : work_requests.first(count)) {
    entries_.push(Entry{.request = request});
  }
  return count;
}

const WorkRequest* WorkQueue::waiting() const {
  const size_t index = index_of(next_);
  return index < entries_.size() ? &entries_[index].request : nullptr;
}

uint64_t WorkQueue::start() {
  const uint64_t number = next_++;
  entries_[index_of(number)].state = State::kStarted;
  skip_to_waiting();
  return number;
}

void WorkQueue::finish(uint64_t number, CompletionStatus status) {
  Entry& entry = entries_[index_of(number)];
  PACECAR_CHECK(entry.state == State::kStarted || entry.state == State::kLost);
  entry.state = State::kDone;
  entry.status = status;
}

void WorkQueue::lose(uint64_t number) {
  Entry& entry = entries_[index_of(number)];
  PACECAR_CHECK(entry.state == State::kStarted);
  entry.state = State::kLost;
}

void WorkQueue::put_back(uint64_t number) {
  Entry& entry = entries_[index_of(number)];
  if (entry.revoked) return finish(number, CompletionStatus::kMemoryGone);
  PACECAR_CHECK(entry.state == State::kStarted || entry.state == State::kLost);
  entry.state = State::kWaiting;
  next_ = std::min(next_, number);
}

void WorkQueue::revoke(uint32_t local_key) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.request.local_key != local_key) continue;
    entry.revoked = true;
    if (entry.state != State::kWaiting) continue;
    entry.state = State::kDone;
    entry.status = CompletionStatus::kMemoryGone;
  }
  skip_to_waiting();
}

bool WorkQueue::in_use(uint32_t local_key) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.state == State::kStarted && entry.request.local_key == local_key) return true;
  }
  return false;
}

bool WorkQueue::pop_completed(WorkRequest* request, CompletionStatus* status) {
  if (entries_.empty() || entries_.front().state != State::kDone) return false;
  *request = entries_.front().request;
  *status = entries_.front().status;
  entries_.pop_front();
  ++first_;
  return true;
}

// Requests behind one that was put back may be posted or have failed: both are skipped.
void WorkQueue::skip_to_waiting() {
  while (index_of(next_) < entries_.size() && entries_[index_of(next_)].state != State::kWaiting) {
    ++next_;
  }
}

}  // namespace pacecar
