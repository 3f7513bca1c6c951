// The part of VerbsNic that receives: completions and events of the device.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <algorithm>

#include "transport/nic/paced/next_completion.h"
#include "transport/verbs/verbs_nic.h"

namespace pacecar {
namespace {

// A time stamp before the departure is wrong; the completion then counts as of now.
Duration round_trip(Lane& lane, const LaneLedger::Entry& entry, Duration late, Instant now) {
  constexpr auto kShortest = Duration::from_ns(1);
  const Duration seen = std::max(now - entry.departure, kShortest);
  return lane.limit.round_trip(late < seen ? seen - late : seen, entry.held);
}

}  // namespace

size_t VerbsNic::receive(Instant now) {
  now_ = now;
  // Without room here, completions stay in the device's queue, which has room for all.
  if (received_.size() + CompletionQueue::kBatch > received_.capacity()) return 0;
  const auto completions = completions_.poll(now);
  for (size_t i = 0; i < completions.size(); ++i) {
    on_completion(completions[i], completions_.lateness(i, now), now);
  }
  if (completions_.error() != 0 && !device_failed_) {
    on_device_failed("the device's completion queue cannot be read");
  }
  return completions.size();
}

void VerbsNic::on_completion(const ibv_wc& completion, Duration late, Instant now) {
  const VerbsWorkId id = VerbsWorkId::unpack(completion.wr_id);
  if (id.receive && id.lane != StandbyLane::kLaneNumber) {
    return on_received(completion, id.queue_pair == 0);
  }
  QueuePair* qp = find(id.queue_pair);
  if (qp == nullptr) return;
  if (id.lane == StandbyLane::kLaneNumber) return on_standby(*qp, completion);
  on_sent(*qp, id, completion, late, now);
}

void VerbsNic::on_sent(QueuePair& qp, const VerbsWorkId& id, const ibv_wc& completion,
                       Duration late, Instant now) {
  if (id.lane >= qp.lanes.size()) return;
  Lane& lane = qp.lanes[id.lane];
  if (id.sequence == lane.ledger.next_sequence() && lane.ending.marked) {
    lane.ending.drained = true;
    next_recovery_ = now;
    return;
  }
  const size_t count = lane.ledger.up_to(id.sequence);
  if (count == 0) return;  // of a replaced connection
  lane.ledger.on_completion(now);
  const StatusInfo* failure =
      completion.status == IBV_WC_SUCCESS ? nullptr : &status_info(completion.status);
  // A flushed work request proves nothing about earlier ones. Any other completion proves that they
  // are done, because RC keeps order.
  const bool earlier_done = completion.status != IBV_WC_WR_FLUSH_ERR;
  for (size_t left = count; left > 0; --left) {
    const LaneLedger::Entry entry = lane.ledger.take();
    --qp.started;
    --started_;
    if (qp.config.paced) flows_.on_done(qp.config.flow, entry.bytes);
    if (left > 1 ? earlier_done : failure == nullptr) {
      qp.work.finish(entry.number, CompletionStatus::kOk);
      lane.account.on_done(entry);
      if (qp.config.paced) {
        // Unsignaled ones were done earlier, at an unknown time.
        const Duration rtt = entry.signaled ? round_trip(lane, entry, late, now) : Duration();
        flows_.on_acknowledged(qp.config.flow, entry.bytes, rtt);
      }
    } else if (left == 1 && failure->own && qp.state == QueuePair::State::kConnected) {
      qp.work.finish(entry.number, failure->completion);
    } else {
      qp.work.lose(entry.number);
      lane.account.on_lost(entry);
    }
  }
  completed_.add(slot_of(qp));
  if (failure != nullptr) {
    fail_lane(qp, lane, failure->completion,
              describe_fault(place_of(qp), completion.status, completion.vendor_err));
  }
  if (qp.state == QueuePair::State::kBroken) lane.account.abandon(qp.work);
  wake(qp);
}

void VerbsNic::on_received(const ibv_wc& completion, bool shared) {
  if (shared) completions_.on_receive_used();
  const LaneName name = find_lane(completion.qp_num);
  QueuePair* qp = find(name.queue_pair);
  if (qp == nullptr || name.lane >= qp->lanes.size()) return;
  Lane& lane = qp->lanes[name.lane];
  if (completion.status != IBV_WC_SUCCESS) {
    const StatusInfo& failure = status_info(completion.status);
    return fail_lane(*qp, lane, failure.completion,
                     describe_fault(place_of(*qp), completion.status, completion.vendor_err));
  }
  const bool written = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  if (shared && !written) return;  // a send on a data lane carries nothing
  Completion received{
      .bytes = completion.byte_len,
      .queue_pair = qp->id,
      .immediate = (completion.wc_flags & IBV_WC_WITH_IMM) != 0 ? ntohl(completion.imm_data) : 0,
      .kind = written ? CompletionKind::kReceived : CompletionKind::kReceivedSend};
  if (!shared) {
    received.work_request = qp->receives.front();
    qp->receives.pop_front();
  }
  if (written) lane.account.on_received();
  received_.push(received);
  counters_.data_packets_received += packets_of(completion.byte_len);
  counters_.data_bytes_received += completion.byte_len;
  if (qp->config.paced) flows_.on_arrived(qp->config.flow, completion.byte_len);
}

size_t VerbsNic::poll(std::span<Completion> completions) {
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

// --- events of the device ---

void VerbsNic::look_at_events() {
  AsyncEvents::Event event;
  while (events_.next(&event)) {
    if (event.kind == AsyncEvents::Event::Kind::kDeviceFailed) {
      on_device_failed(ibv_event_type_str(event.type));
    } else {
      on_lane_event(event);
    }
  }
}

void VerbsNic::on_lane_event(const AsyncEvents::Event& event) {
  const LaneName name = find_lane(event.queue_pair);
  QueuePair* qp = find(name.queue_pair);
  if (qp == nullptr) return;
  if (event.kind == AsyncEvents::Event::Kind::kReceivedAll) {
    if (name.lane < qp->lanes.size()) qp->lanes[name.lane].ending.received_all = true;
    next_recovery_ = now_;
    return;
  }
  if (name.lane == StandbyLane::kLaneNumber) {
    qp->standby->stop();
    return on_standby_failed(*qp);
  }
  fail_lane(*qp, qp->lanes[name.lane], CompletionStatus::kLocalError,
            describe_fault(place_of(*qp), ibv_event_type_str(event.type),
                           "look at the peer's log: it may have asked for memory that is not "
                           "registered here"));
}

bool VerbsNic::prepare_to_wait() {
  look_at_events();  // wait_fd() is readable while there are any
  // With no data outstanding only arrivals need to wake us: completions of our own control writes
  // need no action.
  using Wake = CompletionQueue::Wake;
  const bool idle =
      completions_.prepare_to_wait(flows_.any_in_flight() ? Wake::kAny : Wake::kSolicited);
  return idle && completed_.empty() && received_.empty();
}

}  // namespace pacecar
