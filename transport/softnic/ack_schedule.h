// AckSchedule: when each queue pair of a software NIC acknowledges received packets (AckPolicy).
// Acknowledgements of packets in order may wait a little, so that one covers several. Bounded by
// the number of queue pairs. Pure. Thread rule: one owner.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "transport/base/work_list.h"
#include "transport/softnic/config.h"
#include "transport/softnic/queue_pair.h"

namespace pacecar {

class AckSchedule {
 public:
  using QueuePairs = std::vector<std::unique_ptr<QueuePair>>;  // by slot

  // `queue_pairs` outlives it.
  AckSchedule(const SoftNicConfig& config, const QueuePairs& queue_pairs)
      : policy_(config.ack),
        queue_pairs_(queue_pairs),
        due_(queue_pairs.size()),
        later_(queue_pairs.size()) {}

  // After a packet has arrived.
  void request(QueuePair& qp, Instant now, bool at_once) {
    if (at_once || much_unacknowledged(qp)) {
      due_.add(qp.slot);
      return;
    }
    if (policy_.delay == Duration::max()) return;
    quiet_at_ = now + policy_.quiet;
    if (later_.listed(qp.slot)) return;
    qp.ack_deadline = now + policy_.delay;
    later_.add(qp.slot);
  }
  void request_now(const QueuePair& qp) { due_.add(qp.slot); }
  // Packets that are small on average count by number. Others count by bytes, because a burst of
  // full ones arrives as one, also where only Ethernet's usual frames pass.
  bool much_unacknowledged(const QueuePair& qp) const {
    const Bytes small = Bytes{qp.unacknowledged_packets} * kSmallBytes;
    const bool many =
        qp.unacknowledged_packets >= policy_.small_packets && qp.unacknowledged_bytes < small;
    return many || qp.unacknowledged_bytes >= policy_.bytes;
  }
  // Nothing waits to be acknowledged any more.
  void clear(QueuePair& qp) {
    remove(qp.slot);
    qp.unacknowledged_bytes = 0;
    qp.unacknowledged_packets = 0;
  }
  void remove(uint32_t slot) {
    due_.remove(slot);
    later_.remove(slot);
  }

  // Acknowledgements whose deadline is not after `deadline` become due.
  void advance(Instant deadline, Instant now) {
    while (!later_.empty() && (quiet_at_ <= now || waiting().ack_deadline <= deadline)) {
      due_.add(later_.take());
    }
  }
  bool any_due() const { return !due_.empty(); }
  bool is_due(uint32_t slot) const { return due_.listed(slot); }
  QueuePair& next_due() const { return *queue_pairs_[due_.front()]; }

  // Whether an acknowledgement should travel with `packets` packets of data that leave now. With
  // many small packets in both directions, an acknowledgement in each packet would cost more than
  // one from time to time. With several packets of data it costs next to nothing.
  bool worth_joining(const QueuePair& qp, Instant now, size_t packets) const {
    if (due_.listed(qp.slot)) return true;
    if (!later_.listed(qp.slot)) return false;
    if (packets > 1) return true;
    const Instant since = qp.ack_deadline - policy_.delay;
    return qp.unacknowledged_packets * 4 >= policy_.small_packets * 3 ||
           now - since >= policy_.delay / kEarlyJoin;
  }

  // When advance() must be called next; Instant(): now, something is due.
  Instant next_deadline() const {
    if (any_due()) return Instant();
    return later_.empty() ? Instant::never() : std::min(waiting().ack_deadline, quiet_at_);
  }

 private:
  // An acknowledgement joins data once it has waited 1/6 of AckPolicy::delay.
  static constexpr int64_t kEarlyJoin = 6;
  static constexpr Bytes kSmallBytes = 704;  // half of the payload of an Ethernet frame

  const QueuePair& waiting() const { return *queue_pairs_[later_.front()]; }

  AckPolicy policy_;
  const QueuePairs& queue_pairs_;
  WorkList due_;      // slots of queue pairs with an acknowledgement or answer that is due
  WorkList later_;    // slots of queue pairs whose acknowledgement may wait, by deadline
  Instant quiet_at_;  // when all of later_ are due, unless more arrives
};

}  // namespace pacecar
