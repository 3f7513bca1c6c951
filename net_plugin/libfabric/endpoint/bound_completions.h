// Where completions go: an endpoint's queues, counters. Thread rule: with the domain's lock held.
#pragma once

#include <map>

#include "net_plugin/libfabric/endpoint/operation.h"

namespace pacecar::fabric {

struct BoundQueue {
  CompletionQueue* queue = nullptr;
  bool selective = false;  // FI_SELECTIVE_COMPLETION

  bool full() const { return queue != nullptr && queue->full(); }
  // Whether the success of an operation with these flags is queued.
  bool wants(uint64_t flags) const { return !selective || (flags & FI_COMPLETION) != 0; }
};

class BoundCompletions {
 public:
  BoundCompletions() = default;
  ~BoundCompletions();
  BoundCompletions(const BoundCompletions&) = delete;
  BoundCompletions& operator=(const BoundCompletions&) = delete;

  // As fi_ep_bind.
  int bind(CompletionQueue& queue, uint64_t flags);
  void bind(Counter& counter, uint64_t flags);

  const BoundQueue& transmit() const { return transmit_; }
  const BoundQueue& receive() const { return receive_; }
  bool has_counters() const { return !counters_.empty(); }

  // A success or, with an error, a failure. Without flags: the application did not start it.
  void report(PendingCompletion pending);
  // FI_REMOTE_READ, by a peer.
  void report_remote_read() { count(FI_REMOTE_READ, false); }
  void report_remote_write(MemoryRegion& region, const Frame& frame, fi_addr_t source,
                           uint64_t kind);  // A peer's write (FI_RMA) or atomic (FI_ATOMIC).

 private:
  void count(uint64_t what, bool failed);

  BoundQueue transmit_;
  BoundQueue receive_;
  std::map<uint64_t, Counter*> counters_;  // by event: one FI_ bit each
};

}  // namespace pacecar::fabric
