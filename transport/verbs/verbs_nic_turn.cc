// VerbsNic's turn: the device's completions and events, timers, and work requests that may leave.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/base/check.h"
#include "transport/verbs/verbs_nic.h"

namespace pacecar {
namespace {

constexpr Duration kEventPeriod = Duration::from_ms(5);

// A time stamp before the departure is wrong; the completion then counts as polled in time.
Duration round_trip(const LaneLedger::Entry& entry, Duration late, Instant now) {
  const Duration seen = std::max(now - entry.departure, Duration::from_ns(1));
  return late < seen ? seen - late : seen;
}

}  // namespace

size_t VerbsNic::receive(Instant now) {
  now_ = now;
  // Without room in received_, completions stay in the device's queue, which has room for all.
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
  if (id.receive && id.lane != StandbyLane::kLaneNumber) return on_received(completion);
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
        // Unsignaled work requests were done earlier, at an unknown time.
        const Duration rtt = entry.signaled ? round_trip(entry, late, now) : Duration();
        flows_.on_acknowledged(qp.config.flow, entry.bytes, rtt);
      }
    } else if (left == 1 && failure->request_at_fault && qp.connected()) {
      qp.work.finish(entry.number, failure->completion);
    } else {
      qp.work.lose(entry.number);
      lane.account.on_lost(entry);
    }
  }
  completed_.add(slot_of(qp.id));
  if (failure != nullptr) {
    fail_lane(qp, lane, failure->completion,
              describe_fault(place_of(qp), completion.status, completion.vendor_err));
  }
  if (qp.state == QueuePair::State::kBroken) lane.account.abandon(qp.work);
  wake(qp);
}

void VerbsNic::on_received(const ibv_wc& completion) {
  completions_.on_receive_used();
  const auto [qp, index] = find_lane(completion.qp_num);
  if (qp == nullptr || index >= qp->lanes.size()) return;
  Lane& lane = qp->lanes[index];
  if (completion.status != IBV_WC_SUCCESS) {
    const StatusInfo& failure = status_info(completion.status);
    return fail_lane(*qp, lane, failure.completion,
                     describe_fault(place_of(*qp), completion.status, completion.vendor_err));
  }
  // A send carries nothing: the receive request has no memory.
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) return;
  lane.account.on_received();
  on_arrived(*qp, completion.byte_len, ntohl(completion.imm_data));
}

void VerbsNic::poll_events() {
  ibv_async_event event{};
  while (ibv_get_async_event(device_.context.get(), &event) == 0) {
    on_event(event);
    ibv_ack_async_event(&event);
  }
}

void VerbsNic::on_event(const ibv_async_event& event) {
  const char* const name = ibv_event_type_str(event.event_type);
  const auto log = [&](LogLevel level, std::string_view meaning) {
    config_.log(level,
                fmt::format("{} port {}: {}: {}", device_.name, device_.port, name, meaning));
  };
  const auto of_our_port = [&] {
    return static_cast<uint32_t>(event.element.port_num) == device_.port;
  };
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR: return on_lane_failed(event.element.qp->qp_num, name);
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      if (const auto [qp, lane] = find_lane(event.element.qp->qp_num); qp != nullptr) {
        if (lane < qp->lanes.size()) qp->lanes[lane].ending.received_all = true;
        next_recovery_ = now_;
      }
      return;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
      log(LogLevel::kError, "the device can no longer be used");
      return on_device_failed(name);
    case IBV_EVENT_PORT_ERR:
      if (of_our_port()) log(LogLevel::kWarn, "the link is down; transfers wait for it");
      return;
    case IBV_EVENT_PORT_ACTIVE:
      if (of_our_port()) log(LogLevel::kInfo, "the link is up");
      return;
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
      return log(LogLevel::kInfo, "connections made before may not reach us any more");
    default: return;
  }
}

void VerbsNic::on_lane_failed(uint32_t number, std::string_view event) {
  const auto [qp, lane] = find_lane(number);
  if (qp == nullptr) return;
  if (lane == StandbyLane::kLaneNumber) {
    qp->standby->stop();
    return on_standby_failed(*qp);
  }
  fail_lane(*qp, qp->lanes[lane], CompletionStatus::kLocalError,
            describe_fault(place_of(*qp), event,
                           "look at the peer's log: it may have asked for memory that is not "
                           "registered here"));
}

bool VerbsNic::prepare_to_wait(Instant now) {
  poll_events();  // wait_fd() is readable while there are any
  // Without outstanding data only arrivals wake us: completions of control writes need no action.
  using Wake = CompletionQueue::Wake;
  completions_.notify(flows_.any_in_flight() ? Wake::kAny : Wake::kSolicited);
  return receive(now) == 0 && all_polled();
}

void VerbsNic::on_time(Instant now) {
  now_ = now;
  flows_.on_time(now);
  watch_lanes(now);
  recover(now);
  if (now < next_event_poll_) return;
  next_event_poll_ = now + kEventPeriod;
  poll_events();
  if (completions_.distrusts_stamps() && !std::exchange(distrust_reported_, true)) {
    config_.log(LogLevel::kWarn,
                fmt::format("the time stamps of {} make no sense: its round trips are measured by "
                            "our clock; PACECAR_EXPERT_VERBS_WITHOUT=time_stamps leaves them out",
                            device_.name));
  }
}

Instant VerbsNic::next_deadline() const {
  if (!all_polled() || !controls_.empty()) return Instant();
  Instant next = flows_.next_deadline();
  if (started_ > 0) next = std::min(next, next_watch_);
  return recovering_.empty() ? next : std::min(next, next_recovery_);
}

const WorkRequest* VerbsNic::waiting(uint32_t slot) const {
  const QueuePair& qp = *queue_pairs_[slot];
  return qp.can_start() ? qp.work.waiting() : nullptr;
}

size_t VerbsNic::send(QueuePair& qp, PacedFlows::Turn* turn) {
  PostBatch batch(qp);
  while (!batch.full() && qp.can_start()) {
    const WorkRequest& request = *qp.work.waiting();
    PACECAR_CHECK(request.length <= device_.port_attributes.max_msg_sz);
    if (!fits(turn, request.length)) break;
    const Bytes headers = packets_of(request.length) * caps_.packet_overhead;
    const Instant departure = depart(turn, request.length, request.length + headers);
    ++qp.started;
    ++started_;
    batch.add(request, qp.work.start(), departure);
  }
  if (turn == nullptr) wake(qp);
  if (const int error = batch.post(); error != 0) {
    break_queue_pair(qp, CompletionStatus::kLocalError,
                     verbs_error(Call::kOther, "ibv_post_send", error, device_.name).message);
  }
  return batch.size();
}

}  // namespace pacecar
