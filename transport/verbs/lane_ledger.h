// The outstanding work requests of one lane (an RC connection), and what a completion refers to.
// Bounded; allocates once. Pure. Thread rule: one owner.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/base/check.h"
#include "transport/base/fixed_queue.h"
#include "transport/base/units.h"
#include "transport/nic/nic.h"

namespace pacecar {

// The outstanding work requests, in the order of posting. RC completes in order, so a completion
// covers all before it, and only some work requests need to be signaled.
class LaneLedger {
 public:
  struct Entry {
    uint64_t number = 0;  // of the work request in its queue pair's WorkQueue
    Bytes bytes = 0;
    Instant departure;  // when its last byte leaves the device if nothing delays it
    Opcode opcode = Opcode::kWrite;
    bool signaled = false;
  };
  static constexpr uint32_t kSequenceMask = (1U << 24) - 1;
  // At least one work request per kSignalBytes is signaled, to sample the round trip of each chunk.
  static constexpr Bytes kSignalBytes = 16 << 10;

  explicit LaneLedger(uint32_t capacity) : entries_(capacity) {}

  // The sequence number of the next entry.
  uint32_t next_sequence() const {
    return (first_ + static_cast<uint32_t>(entries_.size())) & kSequenceMask;
  }
  // Whether the next entry, of `bytes`, should be signaled; the last one of a batch always is.
  bool wants_signal(Bytes bytes) const { return unsignaled_ + bytes >= kSignalBytes; }

  void add(const Entry& entry) {
    PACECAR_CHECK(entries_.push(entry));
    in_flight_ += entry.bytes;
    unsignaled_ = entry.signaled ? 0 : unsignaled_ + entry.bytes;
  }
  void signal_last() {
    entries_[entries_.size() - 1].signaled = true;
    unsignaled_ = 0;
  }
  // How many entries a completion with this sequence number covers; 0: unknown number.
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
  // When the oldest entry left, or the last completion came, if later; never(): none outstanding.
  Instant stalled_since() const {
    return entries_.empty() ? Instant::never() : std::max(entries_.front().departure, moved_);
  }

  bool empty() const { return entries_.empty(); }
  Bytes in_flight() const { return in_flight_; }

 private:
  FixedQueue<Entry> entries_;
  uint32_t first_ = 0;  // sequence number of the oldest
  Bytes in_flight_ = 0;
  Bytes unsignaled_ = 0;  // since the last signaled one
  Instant moved_;         // the last completion
};

// A completion's queue pair, lane and operation, as the 64 bits that libibverbs returns. In
// completions with an error nothing else is reliable.
struct VerbsWorkId {
  QueuePairId queue_pair = 0;  // 0: none, a shared receive request
  uint8_t lane = 0;
  bool receive = false;
  uint32_t sequence = 0;  // on the lane; of LaneLedger

  uint64_t pack() const {
    return uint64_t{queue_pair} << 32 | uint64_t{receive} << 31 | uint64_t{lane} << 24 | sequence;
  }
  static VerbsWorkId unpack(uint64_t id) {
    return {.queue_pair = static_cast<QueuePairId>(id >> 32),
            .lane = static_cast<uint8_t>(id >> 24 & 0x7F),
            .receive = (id >> 31 & 1) != 0,
            .sequence = static_cast<uint32_t>(id) & LaneLedger::kSequenceMask};
  }
};

}  // namespace pacecar
