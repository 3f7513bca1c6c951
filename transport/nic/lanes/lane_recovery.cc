#include "transport/nic/lanes/lane_recovery.h"

#include <utility>

namespace pacecar {

void LaneRecovery::on_failed(Instant deadline) {
  PACECAR_CHECK(up());
  go_to(State::kFailed);
  deadline_ = deadline;
}

bool LaneRecovery::on_message(const RecoveryMessage& message) {
  // The lane was ready at both ends, and has failed at the peer before we used it.
  if (message.generation != generation_ && next(true) == Step::kUse) on_used();
  if (message.generation != generation_) return false;
  if (message.kind == RecoveryMessage::Kind::kOffer) {
    if (offer_.has_value()) return false;
    offer_ = message;
    return true;
  }
  // The peer has joined our connection, so it has our offer, and we have its.
  const bool possible = state_ == State::kReplaced ? sent_ : state_ == State::kJoined;
  if (!possible || !offer_.has_value() || ready_) return false;
  ready_ = true;
  return true;
}

LaneRecovery::Step LaneRecovery::next(bool path_ready) const {
  switch (state_) {
    case State::kUp:
      return Step::kWait;
    case State::kFailed:
      return path_ready || offered() ? Step::kReplace : Step::kWait;
    case State::kReplaced:
      if (!sent_) return Step::kSendOffer;
      return offered() ? Step::kJoin : Step::kWait;
    case State::kJoined:
      break;
  }
  if (!sent_) return Step::kSendReady;
  return ready_ ? Step::kUse : Step::kWait;
}

bool LaneRecovery::on_used() {
  go_to(State::kUp);
  ready_ = false;
  offer_.reset();
  deadline_ = Instant::never();
  ++generation_;
  return std::exchange(failed_again_, false);
}

}  // namespace pacecar
