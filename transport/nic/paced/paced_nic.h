// PacedNic: what NICs that pace whole writes have in common: queue pairs by slot, flows,
// completions and counters.
//
// A `QueuePair` has `id`, `config`, `peer`, `fault`, `leaving()` (its user has destroyed it),
// `work` (WorkQueue), `state`, `broken_by` and `broken_reported`. Thread rule: as Nic and NicPort.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/nic/nic_port.h"
#include "transport/nic/paced/paced_flows.h"

namespace pacecar {

template <typename QueuePair>
class PacedNic : public Nic, public NicPort, protected WaitingWork {
 public:
  // --- Nic ---
  const NicCaps& caps() const override { return caps_; }
  const NicCounters& counters() const override { return counters_; }
  std::string peer(QueuePairId id) const override {
    const QueuePair* qp = find(id);
    return qp == nullptr ? std::string() : qp->peer;
  }
  std::string fault(QueuePairId id) const override {
    const QueuePair* qp = find(id);
    return qp == nullptr ? std::string() : qp->fault;
  }
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
  const Address& address() const override { return address_; }

 protected:
  // `slots`: a power of two; `arrivals`: the most that may wait for poll().
  PacedNic(NicCaps caps, const Address& address, size_t slots, size_t arrivals, Instant now)
      : caps_(std::move(caps)),
        address_(address),
        mtu_shift_(std::has_single_bit(caps_.mtu) ? std::countr_zero(caps_.mtu) : -1),
        queue_pairs_(slots),
        flows_(*this, caps_.flows, caps_.burst_bytes, caps_.jitter, now),
        controls_(slots),
        completed_(slots),
        received_(arrivals),
        now_(now),
        departures_(now) {}

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

  Bytes packets_of(Bytes payload) const {
    if (payload == 0) return 1;
    const Bytes up = payload + caps_.mtu - 1;
    return mtu_shift_ >= 0 ? up >> mtu_shift_ : up / caps_.mtu;
  }
  // When the last byte of a write leaves that is posted to the device now.
  Instant depart(Bytes wire_bytes, Instant now) {
    return departures_ = std::max(departures_, now) + caps_.line_rate.time_for(wire_bytes);
  }
  void count_sent(Bytes bytes) {
    counters_.data_packets_sent += packets_of(bytes);
    counters_.data_bytes_sent += bytes;
  }
  // What the peer has written with immediate, or sent.
  void on_arrived(const QueuePair& qp, const Completion& arrival) {
    received_.push(arrival);
    counters_.data_packets_received += packets_of(arrival.bytes);
    counters_.data_bytes_received += arrival.bytes;
    if (qp.config.paced) flows_.on_arrived(qp.config.flow, arrival.bytes);
  }

  NicCaps caps_;
  const Address address_;  // this host's, for the bootstrap
  const int mtu_shift_;    // -1: the MTU is no power of two
  NicCounters counters_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;  // by slot, the low bits of the number
  PacedFlows flows_;
  WorkList controls_;   // slots of unpaced queue pairs with work
  WorkList completed_;  // slots of queue pairs with completions
  FixedQueue<Completion> received_;
  Instant now_;         // of the last turn
  Instant departures_;  // when all that was posted has left the device, at line rate

 private:
  // The next completion: of work requests in the order of posting, and last kBroken if the queue
  // pair is broken. False: none now.
  static bool next_completion(QueuePair& qp, Completion* completion);
};

template <typename QueuePair>
size_t PacedNic<QueuePair>::poll(std::span<Completion> completions) {
  size_t count = 0;
  while (count < completions.size() && !received_.empty()) {
    if (find(received_.front().queue_pair) != nullptr) completions[count++] = received_.front();
    received_.pop_front();
  }
  while (count < completions.size() && !completed_.empty()) {
    QueuePair& qp = *queue_pairs_[completed_.front()];
    if (next_completion(qp, &completions[count])) {
      ++count;
    } else {
      completed_.take();
    }
  }
  return count;
}

template <typename QueuePair>
bool PacedNic<QueuePair>::next_completion(QueuePair& qp, Completion* completion) {
  *completion = {.queue_pair = qp.id, .kind = CompletionKind::kSent};
  if (qp.broken_reported) return false;
  WorkRequest request;
  while (qp.work.pop_completed(&request, &completion->status)) {
    if (!request.signaled && completion->status == CompletionStatus::kOk) continue;
    completion->work_request = request.id;
    return true;
  }
  if (qp.state != QueuePair::State::kBroken) return false;
  qp.broken_reported = true;
  completion->kind = CompletionKind::kBroken;
  completion->status = qp.broken_by;
  return true;
}

}  // namespace pacecar
