// WorkQueue: the work requests of one queue pair, from posting to completion. They wait in order,
// are posted to lanes in order, may be done in any order, and complete in the order of posting.
// Bounded; allocates once. Pure. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <span>

#include "transport/base/fixed_queue.h"
#include "transport/nic/nic.h"

namespace pacecar {

class WorkQueue {
 public:
  explicit WorkQueue(uint32_t capacity) : entries_(capacity) {}

  size_t post(std::span<const WorkRequest> work_requests);  // Takes as many as there is room for.

  // The number of work requests that pop_completed() has not returned yet.
  size_t size() const { return entries_.size(); }
  const WorkRequest& request(uint64_t number) const { return entries_[index_of(number)].request; }

  // The oldest work request that is not posted to a lane; nullptr: none.
  const WorkRequest* waiting() const;
  // Marks the waiting() one as posted to a lane; returns its number, for finish().
  uint64_t start();
  void finish(uint64_t number, CompletionStatus status);
  // The lane has failed, and it is not known yet whether the work request is done. Call finish() or
  // put_back() later.
  void lose(uint64_t number);
  // The work request is not done. It waits again, before all that were posted after it; or it
  // fails, if its memory was revoked meanwhile.
  void put_back(uint64_t number);
  // The queue pair is broken: the work request will never complete.
  void abandon(uint64_t number) { entries_[index_of(number)].state = State::kAbandoned; }

  // Deregistered memory: fails the work requests that use it and wait, now or once put back.
  void revoke(uint32_t local_key);
  bool in_use(uint32_t local_key) const;  // Whether a lane may still use the memory.

  // The next completed work request, in order; false: none yet.
  bool pop_completed(WorkRequest* request, CompletionStatus* status);

 private:
  enum class State : uint8_t { kWaiting, kStarted, kLost, kDone, kAbandoned };
  struct Entry {
    WorkRequest request;
    State state = State::kWaiting;
    bool revoked = false;
    CompletionStatus status = CompletionStatus::kOk;
  };

  size_t index_of(uint64_t number) const { return static_cast<size_t>(number - first_); }
  void skip_to_waiting();

  FixedQueue<Entry> entries_;  // numbers first_ ..
  uint64_t first_ = 0;
  uint64_t next_ = 0;  // the oldest that waits, or the end; later ones may be posted to a lane
};

}  // namespace pacecar
