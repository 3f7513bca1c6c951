// The part of VerbsNic that moves data: what arrives, completions and events of the device; what
// leaves, as the limits of the flows allow; and the lanes' rate limits at the device.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/verbs/verbs_nic.h"

namespace pacecar {
namespace {

// Work requests per call, so that completions are polled in between.
constexpr size_t kMaxTransmit = 64;
constexpr Duration kEventPeriod = Duration::from_ms(5);
// Between commands that set a rate limit, as each takes some tens of microseconds, during which
// this thread does nothing else. Meanwhile the flow's lanes keep their old limits.
constexpr Duration kBetween = Duration::from_ms(2);
// Of these commands in a row; a single one may come from a connection whose failure has not been
// reported yet.
constexpr uint32_t kMostRefused = 3;

// A time stamp before the departure is wrong; the completion then counts as polled in time.
Duration round_trip(Lane& lane, const LaneLedger::Entry& entry, Duration late, Instant now) {
  constexpr auto kShortest = Duration::from_ns(1);
  const Duration seen = std::max(now - entry.departure, kShortest);
  return lane.limit.round_trip(late < seen ? seen - late : seen, entry.held);
}

}  // namespace

size_t VerbsNic::post(QueuePairId id, std::span<const WorkRequest> work_requests) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr && qp->state != QueuePair::State::kCreated);
  if (qp->state == QueuePair::State::kBroken) return 0;
  for (const WorkRequest& request : work_requests) {
    PACECAR_CHECK(request.length <= device_.port_attributes.max_msg_sz);
    PACECAR_CHECK(!qp->config.paced || request.opcode == Opcode::kWrite ||
                  request.opcode == Opcode::kWriteWithImm);
  }
  const size_t accepted = qp->work.post(work_requests);
  wake(*qp);
  return accepted;
}

size_t VerbsNic::post_receives(QueuePairId id, std::span<const ReceiveRequest> requests) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr);
  size_t count = 0;
  while (count < requests.size() && !qp->receives.full() &&
         qp->state != QueuePair::State::kBroken) {
    const ReceiveRequest& request = requests[count];
    const int error =
        post_receive(qp->lanes.front(), VerbsWorkId{.queue_pair = id, .receive = true}.pack(),
                     piece_of(request.local, request.length, request.local_key));
    if (error != 0) {
      break_queue_pair(*qp, CompletionStatus::kLocalError,
                       verbs_error(Call::kOther, "ibv_post_recv", error, device_.name).message);
      break;
    }
    qp->receives.push(request.id);
    ++count;
  }
  return count;
}

void VerbsNic::on_time(Instant now) {
  now_ = now;
  flows_.on_time(now);
  watch_lanes(now);
  recover(now);
  apply_rate_limits(now);
  if (now < next_event_poll_) return;
  next_event_poll_ = now + kEventPeriod;
  poll_events();
  if (completions_.distrusts_stamps() && !std::exchange(distrust_reported_, true)) {
    config_.log(LogLevel::kWarn,
                fmt::format("the time stamps of {} make no sense: its round trips are measured by "
                            "our clock; PACECAR_VERBS_WITHOUT=time_stamps leaves them out",
                            device_.name));
  }
}

Instant VerbsNic::next_deadline() const {
  const bool all_polled = completed_.empty() && received_.empty();
  if (!all_polled || !controls_.empty()) return Instant();
  Instant next = flows_.next_deadline();
  if (started_ > 0) next = std::min(next, next_watch_);
  return recovering_.empty() ? next : std::min(next, next_recovery_);
}

void VerbsNic::wake(const QueuePair& qp) {
  if (qp.config.paced) {  // another of the flow's queue pairs may have waited for the window
    flows_.wake(qp.config.flow);
  } else if (qp.can_start()) {
    controls_.add(slot_of(qp.id));
  }
}

const WorkRequest* VerbsNic::waiting(uint32_t slot) const {
  const QueuePair& qp = *queue_pairs_[slot];
  return qp.can_start() ? qp.work.waiting() : nullptr;
}

size_t VerbsNic::transmit(Instant now) {
  now_ = now;
  size_t count = 0;
  for (size_t left = controls_.size(); left > 0 && count < kMaxTransmit; --left) {
    count += transmit_control(*queue_pairs_[controls_.take()], now);
  }
  while (count < kMaxTransmit) {
    const auto turn = flows_.next_turn(now);
    if (!turn) break;
    count += transmit_turn(*turn, now);
  }
  return count;
}

size_t VerbsNic::transmit_control(QueuePair& qp, Instant now) {
  PostBatch batch(qp);
  while (!batch.full() && qp.can_start()) start(qp, batch, now);
  wake(qp);
  return post_batch(qp, batch);
}

size_t VerbsNic::transmit_turn(PacedFlows::Turn turn, Instant now) {
  QueuePair& qp = *queue_pairs_[turn.slot];
  PostBatch batch(qp);
  while (!batch.full() && qp.can_start()) {
    const Bytes bytes = qp.work.waiting()->length;
    if (!flows_.takes(turn, bytes)) break;
    flows_.on_sent(turn, bytes, wire_bytes(bytes), now);
    start(qp, batch, now);
  }
  flows_.end_turn(turn);
  return post_batch(qp, batch);
}

void VerbsNic::start(QueuePair& qp, PostBatch& batch, Instant now) {
  const WorkRequest& request = *qp.work.waiting();
  const Bytes on_wire = wire_bytes(request.length);
  count_sent(request.length);
  ++qp.started;
  ++started_;
  batch.add(request, qp.work.start(), now, depart(on_wire, now), on_wire);
}

size_t VerbsNic::post_batch(QueuePair& qp, PostBatch& batch) {
  if (const int error = batch.post(); error != 0) {
    break_queue_pair(qp, CompletionStatus::kLocalError,
                     verbs_error(Call::kOther, "ibv_post_send", error, device_.name).message);
  }
  return batch.size();
}

Bytes VerbsNic::wire_bytes(Bytes payload) const {
  return payload + packets_of(payload) * caps_.packet_overhead;
}

void VerbsNic::apply_rate_limits(Instant now) {
  rate_limits_.on_time(now);
  if (now < next_limit_) return;
  for (; rate_limits_.any_unequal(); rate_limits_.settled()) {
    const FlowId flow = rate_limits_.unequal();
    const Rate limit = rate_limits_.limit(flow);
    QueuePair* qp = nullptr;
    Lane* const lane = lane_to_limit(flow, limit, &qp);
    if (lane == nullptr) continue;
    next_limit_ = now + kBetween;
    return limit_lane(*qp, *lane, limit);
  }
}

Lane* VerbsNic::lane_to_limit(FlowId flow, Rate limit, QueuePair** of) {
  for (const uint32_t slot : flows_.slots(flow)) {
    QueuePair& qp = *queue_pairs_[slot];
    if (qp.state != QueuePair::State::kConnected) continue;
    for (Lane& lane : std::span(qp.lanes).first(qp.lanes_used)) {
      if (!lane.up() || lane.limit.rate() == limit) continue;
      *of = &qp;
      return &lane;
    }
  }
  return nullptr;
}

void VerbsNic::limit_lane(QueuePair& qp, Lane& lane, Rate limit) {
  ibv_qp_rate_limit_attr wanted{};  // the burst and packet sizes stay the device's
  wanted.rate_limit = static_cast<uint32_t>((limit.bps() + kBpsPerKbps - 1) / kBpsPerKbps);
  const int error = ibv_modify_qp_rate_limit(lane.queue_pair.get(), &wanted);
  if (error == 0) {
    limits_refused_ = 0;
    return lane.limit.set(limit);
  }
  const std::string fault =
      verbs_error(Call::kOther, "ibv_modify_qp_rate_limit", error, device_.name).message;
  if (limit == Rate()) {
    // The old limit would slow the flow down: replace the connection, and with it the limit.
    lane.limit.set({});
    if (qp.recovers()) fail_lane(qp, lane, CompletionStatus::kLocalError, fault);
  } else {
    rate_limits_.settled();  // until it changes
  }
  if (++limits_refused_ == kMostRefused) {
    config_.log(LogLevel::kWarn,
                fmt::format("{}; from here on it has no rate limits: the packets of a chunk "
                            "leave at line rate",
                            fault));
    rate_limits_.stop();
  }
}

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
        // Unsignaled work requests were done earlier, at an unknown time.
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
  completed_.add(slot_of(qp.id));
  if (failure != nullptr) {
    fail_lane(qp, lane, failure->completion,
              describe_fault(place_of(qp), completion.status, completion.vendor_err));
  }
  if (qp.state == QueuePair::State::kBroken) lane.account.abandon(qp.work);
  wake(qp);
}

void VerbsNic::on_received(const ibv_wc& completion, bool shared) {
  if (shared) completions_.on_receive_used();
  const auto [qp, index] = find_lane(completion.qp_num);
  if (qp == nullptr || index >= qp->lanes.size()) return;
  Lane& lane = qp->lanes[index];
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
  on_arrived(*qp, received);
}

// --- events of the device ---

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
    case IBV_EVENT_QP_ACCESS_ERR:
      return on_lane_failed(event.element.qp->qp_num, name);
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
    default:
      return;
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

bool VerbsNic::prepare_to_wait() {
  poll_events();  // wait_fd() is readable while there are any
  // Without outstanding data only arrivals need to wake us: completions of our control writes need
  // no action.
  using Wake = CompletionQueue::Wake;
  const bool idle =
      completions_.prepare_to_wait(flows_.any_in_flight() ? Wake::kAny : Wake::kSolicited);
  return idle && completed_.empty() && received_.empty();
}

}  // namespace pacecar
