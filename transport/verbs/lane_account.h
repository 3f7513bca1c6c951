// LaneAccount: which work requests of a failed lane have been done. The receiver counts writes with
// immediate. RC keeps order, so its count also covers everything posted before them. The rest is
// sent again.
//
// The counts are of one RC connection; settle() starts those of the next. Bounded; allocates once.
// Pure. Thread rule: one owner.
#pragma once

#include <cstdint>

#include "transport/base/fixed_queue.h"
#include "transport/base/result.h"
#include "transport/nic/paced/work_queue.h"
#include "transport/verbs/lane_ledger.h"

namespace pacecar {

class LaneAccount {
 public:
  explicit LaneAccount(uint32_t capacity) : unsettled_(capacity) {}

  // The peer's write with immediate has arrived.
  void on_received() { ++received_; }
  uint64_t received() const { return received_; }

  // A work request of ours is done.
  void on_done(const LaneLedger::Entry& entry) { confirmed_ += notifies(entry) ? 1 : 0; }
  // The device has flushed it, and its result is unknown. In order of posting.
  void on_lost(const LaneLedger::Entry& entry) { PACECAR_CHECK(unsettled_.push(entry)); }

  struct Settled {
    size_t arrived = 0;
    Bytes arrived_bytes = 0;
    size_t put_back = 0;
  };
  // With the peer's count: finishes the work requests that arrived, and puts the others back into
  // `work`. Errors: kPeer for an impossible count; then nothing changes.
  Result<Settled> settle(uint64_t peer_received, WorkQueue& work);
  // Gives up the unsettled ones: their results will never be known.
  void abandon(WorkQueue& work);

  size_t unsettled() const { return unsettled_.size(); }

 private:
  static bool notifies(const LaneLedger::Entry& entry) {
    return entry.opcode == Opcode::kWriteWithImm;
  }

  FixedQueue<LaneLedger::Entry> unsettled_;
  uint64_t received_ = 0;
  uint64_t confirmed_ = 0;  // our writes with immediate that are done
};

}  // namespace pacecar
