// The part of VerbsNic that recovers failed lanes. Nothing is lost or delivered twice. An end of a
// lane is replaced only when everything that its old connection received has been counted. No late
// packet reaches the new connection, which has another queue pair number. Nothing is sent again
// before both old connections are gone; the counts then show what arrived (LaneAccount).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/base/random_word.h"
#include "transport/verbs/verbs_nic.h"

namespace pacecar {
namespace {

constexpr Duration kRecoveryPeriod = Duration::from_ms(50);
// How long to wait for the event of the last receive, which not every driver reports.
constexpr Duration kLastReceive = Duration::from_ms(20);
constexpr Duration kWatchPeriod = Duration::from_ms(100);
// After the port is active, addresses, routes and switches take some time until packets pass.
constexpr Duration kSettling = Duration::from_ms(200);

}  // namespace

void VerbsNic::fail_lane(QueuePair& qp, Lane& lane, CompletionStatus status, std::string fault) {
  if (qp.state == QueuePair::State::kBroken) return;
  if (lane.recovery.state() == LaneRecovery::State::kFailed) return;
  fault = likely_cause(qp, std::move(fault));
  const bool again = lane.recovery.may_fail_again();
  if (!qp.recovers() || !(lane.up() || again)) {
    return break_queue_pair(qp, status, std::move(fault));
  }
  stop_lane(lane);
  lane.ending.stopped = now_;
  const bool waited = status == CompletionStatus::kRetryExceeded;
  const Duration retries = std::min(config_.silence_limit / 2, kLongestRetries);
  const Duration left = config_.silence_limit - (waited ? retries : Duration());
  lane.failed_by = status;
  lane.failed_because = std::move(fault);
  if (again) return lane.recovery.on_failed_again();
  lane.recovery.on_failed(now_ + left);
  config_.log(LogLevel::kWarn, fmt::format("lane {} has failed and is being replaced: {}",
                                           &lane - qp.lanes.data(), lane.failed_because));
  recovering_.add(slot_of(qp.id));
  next_recovery_ = now_;
}

// Fails lanes that stand still without an error: rdma_rxe sometimes hangs after its link was down.
void VerbsNic::watch_lanes(Instant now) {
  if (started_ == 0 || now < next_watch_) return;
  next_watch_ = now + kWatchPeriod;
  const auto stalled = [&](const Lane& lane) {
    return lane.up() && now - lane.ledger.stalled_since() > config_.silence_limit;
  };
  for (const auto& qp : queue_pairs_) {
    if (qp == nullptr || std::ranges::none_of(qp->lanes, stalled)) continue;
    if (!drain(now)) return;  // the completion may be there, but not polled yet
    for (Lane& lane : qp->lanes) {
      if (!stalled(lane)) continue;
      fail_lane(*qp, lane, CompletionStatus::kRetryExceeded,
                describe_fault(place_of(*qp), "nothing of what was sent is acknowledged any more",
                               "check that the peer's process runs and that the path carries this "
                               "traffic class; else look at the kernel's log"));
    }
  }
}

void VerbsNic::on_standby(QueuePair& qp, const ibv_wc& completion) {
  if (!qp.connected()) return;
  const StandbyLane::Event event = qp.standby->on_completion(completion);
  if (!qp.standby->usable()) return on_standby_failed(qp);
  next_recovery_ = now_;
  if (!event.received) return;
  if (event.message.has_value()) return on_standby_message(qp, *event.message);
  break_queue_pair(qp, CompletionStatus::kLocalError,
                   describe_fault(place_of(qp), "the peer's message about a lane has another form",
                                  "run the same version of Pacecar on both sides"));
}

void VerbsNic::on_standby_message(QueuePair& qp, const RecoveryMessage& message) {
  if (message.lane >= qp.lanes_used || !qp.lanes[message.lane].recovery.on_message(message)) {
    return break_queue_pair(
        qp, CompletionStatus::kLocalError,
        describe_fault(place_of(qp), "the peer's message about a lane comes at the wrong time",
                       "run the same version of Pacecar on both sides"));
  }
  Lane& lane = qp.lanes[message.lane];
  if (!lane.up() || !lane.recovery.offered()) return;
  fail_lane(qp, lane, CompletionStatus::kLocalError,
            describe_fault(place_of(qp), "the peer's end of a lane has failed",
                           "look at the peer's log"));
}

// Without the standby lane no lane can recover, which is harmless until one fails.
void VerbsNic::on_standby_failed(QueuePair& qp) {
  if (!qp.connected()) return;
  const auto down = std::ranges::find(qp.lanes, false, &Lane::up);
  if (down == qp.lanes.end()) return;
  break_queue_pair(qp, down->failed_by, likely_cause(qp, down->failed_because));
}

void VerbsNic::recover(Instant now) {
  if (recovering_.empty() || now < next_recovery_) return;
  next_recovery_ = now + kRecoveryPeriod;
  const bool ready = path_ready(now);
  for (size_t left = recovering_.size(); left > 0 && !recovering_.empty(); --left) {
    QueuePair& qp = *queue_pairs_[recovering_.take()];
    recover_queue_pair(qp, ready, now);
    if (qp.connected() && !qp.all_lanes_up()) recovering_.add(slot_of(qp.id));
  }
}

void VerbsNic::recover_queue_pair(QueuePair& qp, bool ready, Instant now) {
  for (Lane& lane : qp.lanes) {
    while (qp.connected() && !lane.up()) {
      if (now >= lane.recovery.deadline()) {
        return break_queue_pair(qp, lane.failed_by, likely_cause(qp, lane.failed_because));
      }
      const LaneRecovery::Step step = lane.recovery.next(ready);
      if (step == LaneRecovery::Step::kWait || !take_step(qp, lane, step, now)) break;
    }
  }
}

bool VerbsNic::take_step(QueuePair& qp, Lane& lane, LaneRecovery::Step step, Instant now) {
  switch (step) {
    case LaneRecovery::Step::kReplace: return replace_lane(qp, lane, now);
    case LaneRecovery::Step::kSendOffer:
      return send_to_peer(qp, lane, RecoveryMessage::Kind::kOffer);
    case LaneRecovery::Step::kJoin: return join_lane(qp, lane);
    case LaneRecovery::Step::kSendReady:
      return send_to_peer(qp, lane, RecoveryMessage::Kind::kReady);
    case LaneRecovery::Step::kUse:
      if (lane.recovery.on_used()) {
        fail_lane(qp, lane, lane.failed_by, lane.failed_because);
      } else {
        wake(qp);
      }
      return true;
    case LaneRecovery::Step::kWait: break;
  }
  return false;
}

// Whether everything that the lane's old connection received is counted.
bool VerbsNic::drained(const QueuePair& qp, Lane& lane, Instant now) {
  LaneEnd& ending = lane.ending;
  poll_events();
  const bool received_all = ending.received_all || now - ending.stopped >= kLastReceive;
  if (received_all && !ending.marked) {
    const VerbsWorkId id{.queue_pair = qp.id,
                         .lane = static_cast<uint8_t>(&lane - qp.lanes.data()),
                         .sequence = lane.ledger.next_sequence()};
    const ibv_send_wr last{
        .wr_id = id.pack(), .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
    ending.marked = true;
    ending.drained = post_send(lane, last, {}) != 0;  // refused: no more completions will come
  }
  return drain(now) && ending.drained;
}

bool VerbsNic::replace_lane(QueuePair& qp, Lane& lane, Instant now) {
  if (!drained(qp, lane, now)) return false;
  lane.queue_pair.reset();
  if (!drain(now) || !qp.connected()) return false;
  by_lane_.erase(lane.local.queue_pair);
  on_results_lost(qp, lane);
  auto fresh = make_lane(device_, qp.lane_config, path_label(random_word(), 0));
  if (!fresh) {
    break_queue_pair(qp, CompletionStatus::kLocalError, fresh.error().message);
    return false;
  }
  lane.queue_pair = std::move(fresh->queue_pair);
  lane.local = fresh->local;
  lane.flow_label = fresh->flow_label;
  lane.ending = {};
  index_lanes(qp);
  lane.recovery.on_replaced();
  return true;
}

bool VerbsNic::join_lane(QueuePair& qp, Lane& lane) {
  const RecoveryMessage& offer = lane.recovery.offer();
  if (!lane.recovery.failed_again()) {
    auto joined = connect_lane(device_, qp.lane_config, lane, qp.remote, offer.end);
    if (!joined) {
      lane.failed_because = joined.error().message;  // try again later, when there is a route
      return false;
    }
  }
  const auto resolved = lane.account.resolve(offer.received, qp.work);
  if (!resolved) {
    break_queue_pair(qp, CompletionStatus::kLocalError,
                     describe_fault(place_of(qp), resolved.error().message,
                                    "please report it with the versions of both sides"));
    return false;
  }
  config_.log(LogLevel::kInfo,
              fmt::format("{} port {}, peer {}: lane {} is back; of the work requests that were on "
                          "their way, {} had arrived and {} go out again",
                          device_.name, device_.port, qp.peer, &lane - qp.lanes.data(),
                          resolved->arrived, resolved->put_back));
  if (qp.config.paced) {
    flows_.on_acknowledged(qp.config.flow, resolved->arrived_bytes, Duration());
  }
  completed_.add(slot_of(qp.id));
  lane.recovery.on_joined();
  wake(qp);  // the other lanes may take the requests put back
  return true;
}

bool VerbsNic::send_to_peer(QueuePair& qp, Lane& lane, RecoveryMessage::Kind kind) {
  RecoveryMessage message{.kind = kind,
                          .lane = static_cast<uint8_t>(&lane - qp.lanes.data()),
                          .generation = lane.recovery.generation()};
  if (kind == RecoveryMessage::Kind::kOffer) {
    message.end = lane.local;
    message.received = lane.account.received();
  }
  if (!qp.standby->send(message)) {
    if (!qp.standby->usable()) on_standby_failed(qp);
    return false;
  }
  lane.recovery.on_sent();
  return true;
}

bool VerbsNic::drain(Instant now) {
  while (receive(now) > 0) {
  }
  return received_.size() + CompletionQueue::kBatch <= received_.capacity();
}

bool VerbsNic::path_ready(Instant now) {
  if (!device_.port_active()) {
    path_ready_at_ = Instant::never();
  } else if (path_ready_at_ == Instant::never()) {
    path_ready_at_ = now + kSettling;
  }
  return now >= path_ready_at_;
}

std::string VerbsNic::likely_cause(const QueuePair& qp, std::string fault) const {
  if (device_.port_active()) return fault;
  return describe_fault(place_of(qp), fmt::format("the link of {} is down", device_.name),
                        "check cable, switch and the state of its port and network interface");
}

}  // namespace pacecar
