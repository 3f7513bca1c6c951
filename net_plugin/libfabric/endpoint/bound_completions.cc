#include "net_plugin/libfabric/endpoint/bound_completions.h"

namespace pacecar::fabric {

BoundCompletions::~BoundCompletions() {
  for (const BoundQueue* bound : {&transmit_, &receive_}) {
    if (bound->queue != nullptr) --bound->queue->users;
  }
  for (const auto& [what, counter] : counters_) --counter->users;
}

int BoundCompletions::bind(CompletionQueue& queue, uint64_t flags) {
  const bool transmits = (flags & FI_TRANSMIT) != 0;
  const bool receives = (flags & FI_RECV) != 0;
  const bool taken =
      (transmits && transmit_.queue != nullptr) || (receives && receive_.queue != nullptr);
  if (taken || !(transmits || receives)) return -FI_EINVAL;
  const BoundQueue bound{&queue, (flags & FI_SELECTIVE_COMPLETION) != 0};
  if (transmits) transmit_ = bound;
  if (receives) receive_ = bound;
  queue.users += (transmits ? 1 : 0) + (receives ? 1 : 0);
  return 0;
}

void BoundCompletions::bind(Counter& counter, uint64_t flags) {
  for (const uint64_t what :
       {FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE}) {
    if ((flags & what) != 0 && counters_.emplace(what, &counter).second) ++counter.users;
  }
}

void BoundCompletions::count(uint64_t what, bool failed) {
  const auto counter = counters_.find(what);
  if (counter != counters_.end()) counter->second->count(failed);
}

void BoundCompletions::report(PendingCompletion pending) {
  const uint64_t flags = pending.completion.flags;
  if (flags == 0) return;
  const bool failed = pending.completion.err != 0;
  const auto shared = std::move(pending.shared);
  const bool last = shared != nullptr && --shared->incomplete == 0 && shared->used_up;
  const bool releases = last && shared->last == nullptr;
  if (releases) pending.completion.flags |= FI_MULTI_RECV;
  CompletionQueue* const queue = (flags & FI_RECV) != 0 ? receive_.queue : transmit_.queue;
  const bool queued = failed || releases || pending.queued_on_success;
  if (queued && queue != nullptr) queue->add(std::move(pending.completion));
  if (pending.counted) count(flags & (FI_SEND | FI_RECV | FI_WRITE | FI_READ), failed);
  if (last && !releases) report(std::move(*shared->last));
}

void BoundCompletions::report_remote_write(MemoryRegion& region, const Frame& frame,
                                           fi_addr_t source, uint64_t kind) {
  count(FI_REMOTE_WRITE, false);
  if (region.counter != nullptr) region.counter->count(false);
  if ((frame.flags & kHasData) == 0 || receive_.queue == nullptr) return;
  Completion completion;
  completion.flags = kind | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
  completion.len = frame.length;
  completion.data = frame.data;
  completion.source = source;
  receive_.queue->add(std::move(completion));
}

}  // namespace pacecar::fabric
