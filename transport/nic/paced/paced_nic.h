// PacedNic: what NICs that pace whole writes share: queue pairs by slot, work requests,
// completions, flows, counters. A `QueuePair` is a QueuePairState. Threads: as Nic and NicPort.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/fixed_queue.h"
#include "transport/nic/nic_port.h"
#include "transport/nic/paced/paced_flows.h"
#include "transport/nic/paced/queue_pair_state.h"

namespace pacecar {

// Properties of hosts, for NicCaps. A completion waits until the polling thread is woken.
inline constexpr Duration kPollJitter = Duration::from_us(100);
// If a processor moves the data, packets also wait for its threads.
inline constexpr Duration kSoftwareJitter = Duration::from_us(1000);
// A thread that shares its core waits for the scheduler: some slices of a few ms each.
inline constexpr Duration kSchedulerPause = Duration::from_ms(25);

// The rate that the user has set, or the rate of the device, or a usual one.
constexpr Rate choose_line_rate(Rate wanted, Rate device) {
  if (wanted.bps() != 0) return wanted;
  return device.bps() != 0 ? device : Rate::from_gbps(100);
}

template <std::derived_from<QueuePairState> QueuePair>
class PacedNic : public Nic, public NicPort, protected WaitingWork {
 public:
  // --- Nic ---
  const NicCaps& caps() const override { return caps_; }
  const NicCounters& counters() const override { return counters_; }
  std::string peer(QueuePairId id) const override { return text(id, &QueuePair::peer); }
  std::string fault(QueuePairId id) const override { return text(id, &QueuePair::fault); }
  size_t post(QueuePairId id, std::span<const WorkRequest> work_requests) override;
  size_t poll(std::span<Completion> completions) override;
  size_t poll_signals(std::span<FlowSignal> signals) override {
    return flows_.poll_signals(signals);
  }
  void report_arrivals(bool wanted) override { flows_.report_arrivals(wanted); }
  size_t poll_arrivals(std::span<FlowArrival> arrivals) override {
    return flows_.poll_arrivals(arrivals);
  }
  void set_flow_limits(FlowId flow, const FlowLimits& limits, Instant now) override {
    flows_.set_limits(flow, limits, now);
  }

  // --- NicPort ---
  Nic& nic() override { return *this; }
  size_t transmit(Instant now) override;
  const Address& address() const override { return address_; }

 protected:
  // `slots`: a power of two; `arrivals`: the most that may wait for poll(); `generation`: random,
  // so that a later process has other numbers for its queue pairs.
  PacedNic(NicCaps caps, const Address& address, size_t slots, size_t arrivals, uint32_t generation,
           Instant now)
      : caps_(std::move(caps)),
        address_(address),
        queue_pairs_(slots),
        flows_(*this, caps_.flows, caps_.burst_bytes, caps_.jitter, now),
        controls_(slots),
        completed_(slots),
        received_(arrivals),
        now_(now),
        departures_(now),
        generation_(generation) {
    for (uint32_t slot = 0; slot < slots; ++slot) free_slots_.push_back(slot);
  }

  uint32_t slot_of(QueuePairId id) const {
    return id & static_cast<uint32_t>(queue_pairs_.size() - 1);
  }
  QueuePair* find_any(QueuePairId id) const {
    QueuePair* qp = queue_pairs_[slot_of(id)].get();
    return qp != nullptr && qp->id == id ? qp : nullptr;
  }
  // A queue pair of the user: not one that is leaving.
  QueuePair* find(QueuePairId id) const {
    QueuePair* qp = find_any(id);
    return qp != nullptr && !qp->leaving() ? qp : nullptr;
  }

  // The number of the next queue pair, for add(); never 0. Errors: kUnavailable, all are used.
  Result<QueuePairId> next_id();
  void add(std::unique_ptr<QueuePair> qp);  // Adds a queue pair with that number.
  void leave(const QueuePair& qp);          // The user has destroyed the queue pair.
  // Forgets a queue pair. Its slot is used again last, so that late completions find no queue pair.
  void erase(uint32_t slot) {
    queue_pairs_[slot].reset();
    free_slots_.push_back(slot);
  }

  // Call it when the queue pair has more to send, or its device has more room.
  virtual void wake(QueuePair& qp);
  // Hands work requests of a queue pair to the device; returns how many. `turn`: of its flow;
  // null: the queue pair is not paced.
  virtual size_t send(QueuePair& qp, PacedFlows::Turn* turn) = 0;
  bool fits(const PacedFlows::Turn* turn, Bytes bytes) const {
    return turn == nullptr || flows_.takes(*turn, bytes);
  }
  // A work request has been handed to the device in this turn; `wire_bytes`: on the link. Returns
  // when its last byte leaves if nothing delays it.
  Instant depart(PacedFlows::Turn* turn, Bytes bytes, Bytes wire_bytes);
  bool all_polled() const { return completed_.empty() && received_.empty(); }

  Bytes packets_of(Bytes payload) const {
    return payload == 0 ? 1 : (payload + caps_.mtu - 1) / caps_.mtu;
  }
  // What the peer has written with immediate.
  void on_arrived(const QueuePair& qp, Bytes bytes, uint32_t immediate);

  NicCaps caps_;
  const Address address_;  // of this host, for the bootstrap
  NicCounters counters_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;  // by slot, the low bits of the number
  PacedFlows flows_;
  WorkList controls_;   // slots of unpaced queue pairs with work
  WorkList completed_;  // slots of queue pairs with completions
  FixedQueue<Completion> received_;
  Instant now_;  // of the last turn

 private:
  std::string text(QueuePairId id, std::string QueuePair::*which) const {
    const QueuePair* qp = find(id);
    return qp == nullptr ? std::string() : qp->*which;
  }

  // After this many work requests a turn takes no further flow, so that completions are polled.
  static constexpr size_t kMaxTransmit = 64;

  Instant departures_;  // when all requests handed over have left the device, at line rate
  std::deque<uint32_t> free_slots_;
  uint32_t in_use_ = 0;  // queue pairs of the user
  uint32_t generation_;
};

template <std::derived_from<QueuePairState> QueuePair>
Result<QueuePairId> PacedNic<QueuePair>::next_id() {
  if (in_use_ == caps_.queue_pairs || free_slots_.empty()) {
    return fail(
        ErrorCode::kUnavailable,
        "all queue pairs of the NIC are used: close connections or raise PACECAR_MAX_FLOWS");
  }
  const auto slots = static_cast<uint32_t>(queue_pairs_.size());
  QueuePairId id = 0;
  while (id == 0) id = generation_++ * slots | free_slots_.front();
  return id;
}

template <std::derived_from<QueuePairState> QueuePair>
void PacedNic<QueuePair>::add(std::unique_ptr<QueuePair> qp) {
  const uint32_t slot = slot_of(qp->id);
  free_slots_.pop_front();
  ++in_use_;
  if (qp->config.paced) flows_.join(qp->config.flow, slot);
  queue_pairs_[slot] = std::move(qp);
}

template <std::derived_from<QueuePairState> QueuePair>
void PacedNic<QueuePair>::leave(const QueuePair& qp) {
  const uint32_t slot = slot_of(qp.id);
  if (qp.config.paced) flows_.leave(qp.config.flow, slot);
  controls_.remove(slot);
  completed_.remove(slot);
  --in_use_;
}

template <std::derived_from<QueuePairState> QueuePair>
size_t PacedNic<QueuePair>::post(QueuePairId id, std::span<const WorkRequest> work_requests) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr && qp->state != QueuePair::State::kCreated);
  if (!qp->connected()) return 0;
  const size_t accepted = qp->work.post(work_requests);
  wake(*qp);
  return accepted;
}

template <std::derived_from<QueuePairState> QueuePair>
void PacedNic<QueuePair>::wake(QueuePair& qp) {
  // Another of the flow's queue pairs may have waited for the window.
  if (qp.config.paced) return flows_.wake(qp.config.flow);
  const uint32_t slot = slot_of(qp.id);
  if (this->waiting(slot) != nullptr) controls_.add(slot);
}

template <std::derived_from<QueuePairState> QueuePair>
size_t PacedNic<QueuePair>::transmit(Instant now) {
  now_ = now;
  size_t count = 0;
  for (size_t left = controls_.size(); left > 0 && count < kMaxTransmit; --left) {
    count += send(*queue_pairs_[controls_.take()], nullptr);
  }
  while (count < kMaxTransmit) {
    auto turn = flows_.next_turn(now);
    if (!turn) break;
    count += send(*queue_pairs_[turn->slot], &*turn);
    flows_.end_turn(*turn);
  }
  return count;
}

template <std::derived_from<QueuePairState> QueuePair>
Instant PacedNic<QueuePair>::depart(PacedFlows::Turn* turn, Bytes bytes, Bytes wire_bytes) {
  if (turn != nullptr) flows_.on_sent(*turn, bytes, wire_bytes, now_);
  counters_.data_packets_sent += packets_of(bytes);
  counters_.data_bytes_sent += bytes;
  return departures_ = std::max(departures_, now_) + caps_.line_rate.time_for(wire_bytes);
}

template <std::derived_from<QueuePairState> QueuePair>
void PacedNic<QueuePair>::on_arrived(const QueuePair& qp, Bytes bytes, uint32_t immediate) {
  received_.push({.bytes = bytes,
                  .queue_pair = qp.id,
                  .immediate = immediate,
                  .kind = CompletionKind::kReceived});
  counters_.data_packets_received += packets_of(bytes);
  counters_.data_bytes_received += bytes;
  if (qp.config.paced) flows_.on_arrived(qp.config.flow, bytes);
}

template <std::derived_from<QueuePairState> QueuePair>
size_t PacedNic<QueuePair>::poll(std::span<Completion> completions) {
  size_t count = 0;
  while (count < completions.size() && !received_.empty()) {
    if (find(received_.front().queue_pair) != nullptr) completions[count++] = received_.front();
    received_.pop_front();
  }
  while (count < completions.size() && !completed_.empty()) {
    QueuePair& qp = *queue_pairs_[completed_.front()];
    if (qp.pop_completion(&completions[count])) {
      ++count;
    } else {
      completed_.take();
    }
  }
  return count;
}

}  // namespace pacecar
