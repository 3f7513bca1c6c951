// NicCore: what a software NIC's queue pairs share, and what each may change in it. One owner.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/fixed_queue.h"
#include "transport/base/timer_wheel.h"
#include "transport/base/work_list.h"
#include "transport/softnic/ack_schedule.h"
#include "transport/softnic/config.h"
#include "transport/softnic/flow_scheduler.h"
#include "transport/softnic/memory_table.h"
#include "transport/softnic/queue_pair.h"
#include "transport/softnic/random_source.h"
#include "transport/softnic/send_progress.h"

namespace pacecar {

// Slab: memory for the headers and trailers of the packets of one poll_transmit. Pieces are taken
// from front to back, so a packet's trailer and the next packet's header are adjacent, and a packet
// I/O can gather both as one piece. Thread rule: one owner.
class Slab {
 public:
  explicit Slab(size_t size)
      : size_(size), bytes_(std::make_unique_for_overwrite<uint8_t[]>(size)) {}

  void clear() { used_ = 0; }
  size_t room() const { return size_ - used_; }
  std::span<uint8_t> take(size_t size) {
    PACECAR_CHECK(size <= room());
    const std::span piece(bytes_.get() + used_, size);
    used_ += size;
    return piece;
  }
  // Returns `size` bytes from the end of the last piece.
  void give_back(size_t size) { used_ -= size; }

 private:
  size_t used_ = 0;
  size_t size_;
  std::unique_ptr<uint8_t[]> bytes_;
};

// Packets that the peer may send beyond the cumulative one.
uint32_t window_packets(const SoftNicConfig& nic, const QueuePairConfig& queue_pair);

struct NicCore {
  NicCore(const SoftNicConfig& config, RandomSource random, Instant now);

  bool speaks_standard() const { return config.wire_mode != WireMode::kExtended; }
  bool speaks_extended() const { return config.wire_mode != WireMode::kRoce; }
  // The slots that create_queue_pair gives; standby lanes have as many behind them.
  uint32_t user_slots() const;
  uint32_t slot_of(uint32_t number) const {
    return number & static_cast<uint32_t>(queue_pairs.size() - 1);
  }
  QueuePair* find(QueuePairId id) const {
    QueuePair* qp = queue_pairs[slot_of(id)].get();
    return qp != nullptr && qp->id == id ? qp : nullptr;
  }
  // A new number for this slot's queue pair: late packets for earlier numbers do not find it.
  uint32_t next_number(uint32_t slot);
  uint32_t random_psn();
  // The memory of a posted work request must be registered.
  void check_memory(const WorkRequest& work_request) const {
    PACECAR_CHECK(work_request.length == 0 ||
                  memory.covers(work_request.local_key, work_request.local, work_request.length));
  }
  void break_queue_pair(QueuePair& qp, CompletionStatus status, const char* fault = nullptr);
  // Takes a queue pair out of all lists, so that it neither sends nor receives.
  void detach(QueuePair& qp);
  // Processes the timeout of an end's requester.
  template <typename End>
  void on_send_timeout(End& end, Instant now);

  SoftNicConfig config;  // with defaults resolved
  RandomSource random;
  NicCounters counters;
  MemoryTable memory;
  // By slot; the upper half has the standby lanes of the lower half.
  std::vector<std::unique_ptr<QueuePair>> queue_pairs;
  TimerWheel timers;  // ids: slots of queue pairs, then flows
  AckSchedule acks;
  FlowScheduler scheduler;
  WorkList events;  // slots of queue pairs with completions
  WorkList posted;  // slots of queue pairs with work requests that may be incomplete
  FixedQueue<Completion> received;
  Slab slab;  // of one poll_transmit
  // Changes when packets of the last poll_transmit may point to deregistered memory.
  uint64_t invalidations = 0;

 private:
  uint32_t next_generation_;  // the upper bits of the next queue pair's number
};

template <typename End>
void NicCore::on_send_timeout(End& end, Instant now) {
  const Bytes in_flight_before = end.in_flight();
  SendProgress progress;
  switch (end.requester().on_timeout(now, &progress)) {
    case SendTimeout::kNotYet: break;
    case SendTimeout::kPeerDead: return break_queue_pair(end.queue_pair(), end.silence_status());
    case SendTimeout::kRepair:
      if (progress.timed_out || progress.lost > 0) {
        ++counters.timeouts;
        end.on_progress(in_flight_before, progress);
      }
      scheduler.wake(end.queue_pair());
      break;
  }
  timers.arm(end.queue_pair().slot, end.deadline());
}

}  // namespace pacecar
