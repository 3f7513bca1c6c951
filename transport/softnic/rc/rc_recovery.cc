#include "transport/softnic/rc/rc_recovery.h"

#include <utility>

#include "transport/softnic/rc/rc_end.h"

namespace pacecar {
namespace {

// Most connections in a row that may end by our refusal without progress of our own requests: more
// than the peer has work requests that we might refuse.
constexpr uint32_t kMostFutile = 1024;

}  // namespace

StandbyEnd& RcRecovery::standby_end() const { return static_cast<StandbyEnd&>(*standby_->end); }

void RcRecovery::on_malformed() {
  end_.shared().core.break_queue_pair(
      end_.queue_pair(), CompletionStatus::kLocalError,
      "sent an impossible state of a connection: run the same version of Pacecar on both sides");
}

void RcRecovery::on_message(const RecoveryMessage& message, Instant now) {
  if (message.lane != 0 || !machine_.on_message(message)) return on_malformed();
  if (up() && machine_.offered()) fail(CompletionStatus::kLocalError, now);
  advance(now);
}

// Refusals end connections, so two ends that refuse each other at the same time do not receive each
// other's refusals: both would send the same requests over each next connection, forever.
bool RcRecovery::is_futile() {
  const RcResponder& responder = end_.responder();
  const uint64_t before = std::exchange(finished_, end_.requester().done());
  const bool moved = finished_ != before || responder.writes_received() > 0;
  if (moved || !responder.refused()) futile_ = 0;
  return responder.refused() && futile_++ == kMostFutile;
}

void RcRecovery::fail(CompletionStatus status, Instant now) {
  NicCore& core = end_.shared().core;
  QueuePair& qp = end_.queue_pair();
  if (!qp.connected() || machine_.state() == LaneRecovery::State::kFailed) return;
  const bool again = machine_.may_fail_again();
  const bool comes_back = standby_ != nullptr && standby_->connected();
  if (!comes_back || !(up() || again)) return core.break_queue_pair(qp, status);
  if (is_futile()) {
    return core.break_queue_pair(
        qp, status,
        "and this end refuse each other's writes again and again: check the "
        "keys and remote addresses that both were given");
  }
  open_ = false;
  failed_by_ = status;
  const Bytes in_flight = end_.in_flight();
  end_.requester().stop(status);
  end_.on_progress(in_flight, {});
  core.events.add(qp.slot);
  if (again) return machine_.on_failed_again();
  machine_.on_failed(now + core.config.silence_limit);
  core.timers.arm(qp.slot, deadline());
  advance(now);
}

void RcRecovery::on_timeout(Instant now) {
  NicCore& core = end_.shared().core;
  if (now < deadline()) return core.timers.arm(end_.queue_pair().slot, deadline());
  core.break_queue_pair(
      end_.queue_pair(), failed_by_,
      "has not joined another connection within the limit after one had failed: check "
      "that it runs, and look at its log");
}

void RcRecovery::advance(Instant now) {
  while (end_.queue_pair().connected() && !up()) {
    const LaneRecovery::Step step = machine_.next(true);
    if (step == LaneRecovery::Step::kWait || !take_step(step, now)) return;
  }
}

// False: the step is not possible yet.
bool RcRecovery::take_step(LaneRecovery::Step step, Instant now) {
  switch (step) {
    case LaneRecovery::Step::kReplace: return replace();
    case LaneRecovery::Step::kSendOffer: return send(RecoveryMessage::Kind::kOffer);
    case LaneRecovery::Step::kJoin: return join();
    case LaneRecovery::Step::kSendReady: return send(RecoveryMessage::Kind::kReady);
    case LaneRecovery::Step::kUse: use(now); return true;
    case LaneRecovery::Step::kWait: break;
  }
  return false;
}

bool RcRecovery::replace() {
  NicCore& core = end_.shared().core;
  QueuePair& qp = end_.queue_pair();
  const RcResponder& responder = end_.responder();
  if (responder.refused() && responder.answer_due()) return false;  // the NAK must be sent first
  qp.local.queue_pair = core.next_number(qp.slot);
  qp.local.first_psn = core.random_psn();
  core.acks.remove(qp.slot);
  end_.drop_notification();
  machine_.on_replaced();
  return true;
}

bool RcRecovery::send(RecoveryMessage::Kind kind) {
  RecoveryMessage message{.kind = kind, .generation = machine_.generation()};
  if (kind == RecoveryMessage::Kind::kOffer) {
    const SoftEndpoint& local = end_.queue_pair().local;
    message.end = {.queue_pair = local.queue_pair, .first_psn = local.first_psn};
    message.received = end_.responder().writes_received();
  }
  if (!standby_end().send(message)) return false;
  machine_.on_sent();
  return true;
}

bool RcRecovery::join() {
  NicCore& core = end_.shared().core;
  QueuePair& qp = end_.queue_pair();
  const RecoveryMessage& offer = machine_.offer();
  const auto arrived =
      end_.requester().restart(offer.end.queue_pair, wide_psn(qp.local.first_psn), offer.received);
  if (!arrived) {
    core.break_queue_pair(
        qp, CompletionStatus::kLocalError,
        "reports an impossible number of received writes: please report it with the "
        "versions of both sides");
    return false;
  }
  end_.responder().restart(offer.end.queue_pair, wide_psn(offer.end.first_psn));
  qp.remote.queue_pair = offer.end.queue_pair;
  qp.remote.first_psn = offer.end.first_psn;
  end_.on_progress(0, {.acked = *arrived});
  core.events.add(qp.slot);
  open_ = true;
  machine_.on_joined();
  return true;
}

void RcRecovery::use(Instant now) {
  NicCore& core = end_.shared().core;
  QueuePair& qp = end_.queue_pair();
  if (machine_.on_used()) {  // it has failed again meanwhile
    machine_.on_failed(now + core.config.silence_limit);
  } else {
    core.scheduler.wake(qp);
  }
  core.timers.arm(qp.slot, end_.deadline());
}

}  // namespace pacecar
