// LaneAccount: what tells the two ends of a lane that broke which of its work requests have been
// done. The receiver counts writes with immediate; RC keeps order, so that its count says the same
// of everything that was posted before them. What it does not cover goes out once more.
//
// The counts are of one RC connection: settle() begins those of the next.
// Bounded; allocates once. Pure. Thread rule: one owner.
#pragma once

#include <cstdint>

#include "transport/base/fixed_queue.h"
#include "transport/base/result.h"
#include "transport/verbs/lane_ledger.h"
#include "transport/nic/paced/work_queue.h"

namespace pacecar {

class LaneAccount {
 public:
  explicit LaneAccount(uint32_t capacity) : unsettled_(capacity) {}

  // The peer has written with immediate.
  void on_received() { ++received_; }
  uint64_t received() const { return received_; }

  // One of ours is done.
  void on_done(const LaneLedger::Entry& entry) { confirmed_ += notifies(entry) ? 1 : 0; }
  // The device has given it back, and nobody knows yet what became of it. In order of posting.
  void on_lost(const LaneLedger::Entry& entry) { PACECAR_CHECK(unsettled_.push(entry)); }

  struct Settled {
    size_t arrived = 0;
    Bytes arrived_bytes = 0;
    size_t put_back = 0;
  };
  // With what the peer's end has received in all: finishes what arrived, puts the rest back.
  // Errors: kPeer for a count that cannot be; nothing is settled then.
  Result<Settled> settle(uint64_t peer_received, WorkQueue& work);
  // It will never be known.
  void abandon(WorkQueue& work);

  size_t unsettled() const { return unsettled_.size(); }

 private:
  static bool notifies(const LaneLedger::Entry& entry) {
    return entry.opcode == Opcode::kWriteWithImm;
  }

  FixedQueue<LaneLedger::Entry> unsettled_;
  uint64_t received_ = 0;
  uint64_t confirmed_ = 0;  // writes with immediate of ours that are done
};

}  // namespace pacecar
