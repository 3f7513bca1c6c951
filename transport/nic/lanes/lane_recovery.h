// LaneRecovery: how a lane that failed comes back. Both ends put a new RC connection in the place
// of the old one, tell each other of it (offer), join the two, and use the lane when both have
// (ready). Either end may begin, or both at once: each offers exactly once per generation, so an
// offer of the peer is the question or the answer, whichever is missing.
//
//   kUp --fail--> kFailed --replace--> kReplaced --offers of both, join--> kJoined --both ready-->
//   kUp
//
// Pure: it says what is to be done next, and is told when it was. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/base/check.h"
#include "transport/base/units.h"
#include "transport/nic/lanes/recovery_message.h"

namespace pacecar {

class LaneRecovery {
 public:
  enum class State : uint8_t { kUp, kFailed, kReplaced, kJoined };
  enum class Step : uint8_t { kWait, kReplace, kSendOffer, kJoin, kSendReady, kUse };

  State state() const { return state_; }
  bool up() const { return state_ == State::kUp; }
  uint32_t generation() const { return generation_; }
  Instant deadline() const { return deadline_; }

  // The lane must be back by then.
  void on_failed(Instant deadline);
  // The new connection may fail before it is used: by itself, or by the peer, which uses it before
  // we know that it is joined. It goes its way to the end, and then fails as one that is up.
  bool may_fail_again() const { return state_ == State::kReplaced || state_ == State::kJoined; }
  void on_failed_again() { failed_again_ = true; }
  bool failed_again() const { return failed_again_; }
  // False: nothing that the peer may say now. An offer for a lane that is up means that its other
  // end has failed, and so must this one.
  bool on_message(const RecoveryMessage& message);
  // The peer has a new connection, and waits for ours.
  bool offered() const { return offer_.has_value(); }
  const RecoveryMessage& offer() const { return *offer_; }

  // What is to be done; `path_ready`: it makes sense to begin.
  Step next(bool path_ready) const;
  void on_replaced() { go_to(State::kReplaced); }
  void on_sent() { sent_ = true; }
  void on_joined() { go_to(State::kJoined); }
  // True: it has failed again meanwhile.
  bool on_used();

 private:
  void go_to(State state) {
    state_ = state;
    sent_ = false;
  }

  State state_ = State::kUp;
  bool sent_ = false;   // the peer, of the state that we are in
  bool ready_ = false;  // the peer is joined
  bool failed_again_ = false;
  uint32_t generation_ = 0;
  Instant deadline_ = Instant::never();
  std::optional<RecoveryMessage> offer_;
};

}  // namespace pacecar
