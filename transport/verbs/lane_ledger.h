// LaneLedger: what one lane (an RC connection) has on its way, in the order in which it was handed
// to the device. RC completes in order, so one completion stands for all before it, and only some
// work requests need to ask for one.
//
// Pure. Thread rule: one owner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "transport/base/check.h"
#include "transport/base/fixed_queue.h"
#include "transport/base/units.h"
#include "transport/nic/nic.h"

namespace pacecar {

class LaneLedger {
 public:
  struct Entry {
    uint64_t number = 0;  // of the work request in its queue pair's WorkQueue
    Bytes bytes = 0;
    Instant departure;  // when its last byte leaves the device, were nothing to hold it up
    Duration held;      // and so much later at most, by the lane's rate limit
    Opcode opcode = Opcode::kWrite;
    bool signaled = false;
  };
  static constexpr uint32_t kSequenceMask = (1U << 24) - 1;
  // A completion is asked for at least every so many bytes, so that each chunk of data brings a
  // sample of the round trip.
  static constexpr Bytes kSignalBytes = 16 << 10;

  explicit LaneLedger(uint32_t capacity) : entries_(capacity) {}

  // The sequence number of the next entry.
  uint32_t next_sequence() const {
    return (first_ + static_cast<uint32_t>(entries_.size())) & kSequenceMask;
  }
  // Whether the next entry, of `bytes`, should ask for its completion; the last that is posted at
  // once always does.
  bool wants_signal(Bytes bytes) const { return unsignaled_ + bytes >= kSignalBytes; }

  void add(const Entry& entry) {
    PACECAR_CHECK(entries_.push(entry));
    in_flight_ += entry.bytes;
    unsignaled_ = entry.signaled ? 0 : unsignaled_ + entry.bytes;
  }
  // The newest entry asks for its completion, whatever it was added as.
  void signal_last() {
    entries_[entries_.size() - 1].signaled = true;
    unsignaled_ = 0;
  }
  // How many entries a completion with this sequence number stands for; 0: it is none of ours.
  size_t up_to(uint32_t sequence) const {
    const size_t count = ((sequence - first_) & kSequenceMask) + size_t{1};
    return count <= entries_.size() ? count : 0;
  }
  Entry take() {
    const Entry entry = entries_.front();
    entries_.pop_front();
    first_ = (first_ + 1) & kSequenceMask;
    in_flight_ -= entry.bytes;
    return entry;
  }

  void on_completion(Instant now) { moved_ = now; }
  // Since when nothing has been done of what the device has; never() when it has nothing.
  Instant stalled_since() const {
    return entries_.empty() ? Instant::never()
                            : std::max(entries_.front().departure + entries_.front().held, moved_);
  }

  bool empty() const { return entries_.empty(); }
  Bytes in_flight() const { return in_flight_; }

 private:
  FixedQueue<Entry> entries_;
  uint32_t first_ = 0;  // sequence number of the oldest
  Bytes in_flight_ = 0;
  Bytes unsignaled_ = 0;  // since the last that asked
  Instant moved_;         // the last completion
};

// The lane for the next chunk: of those with the fewest bytes in flight, the first from `turn` on.
size_t choose_lane(std::span<const Bytes> in_flight, size_t turn);

}  // namespace pacecar
