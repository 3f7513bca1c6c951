// LaneRecovery: the state machine that recovers a failed lane, at one end. Each end replaces its
// end of the old RC connection by a new one and offers that to the peer; the ends join the two, and
// use the lane when both are ready. Either end may begin, or both at once. Each end offers exactly
// once per generation, so the peer's offer is either a request or the answer to ours.
//   kUp --fail--> kFailed --replace--> kReplaced --both offer, join--> kJoined --both ready--> kUp
// Pure: the owner does the step that next() returns, and reports it. Thread rule: one owner.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/base/units.h"
#include "transport/nic/rc_endpoint.h"

namespace pacecar {

// A message between the ends of a queue pair. It travels over the standby lane, which keeps order.
struct RecoveryMessage {
  enum class Kind : uint8_t {
    kOffer = 1,  // the sender has a new RC connection for its end of the lane: `end`
    kReady = 2,  // the sender has joined it to the receiver's connection: packets to it arrive
  };
  static constexpr size_t kBytes = 24;

  Kind kind = Kind::kOffer;
  uint8_t lane = 0;
  uint32_t generation = 0;  // how many connections the lane has had before the offered one
  RcLane end;               // kOffer
  uint64_t received = 0;    // kOffer: writes with immediate received on the failed connection

  bool operator==(const RecoveryMessage&) const = default;
};

std::array<uint8_t, RecoveryMessage::kBytes> encode(const RecoveryMessage& message);
// nullopt for anything that encode() does not produce.
std::optional<RecoveryMessage> decode_recovery_message(std::span<const uint8_t> bytes);

// Appends our end of the standby lane to the extension of an RcEndpoint.
inline constexpr size_t kStandbyBytes = 12;
void announce_standby(const RcLane& end, RcEndpoint& endpoint);
// nullopt: the peer has no standby lane.
std::optional<RcLane> announced_standby(const RcEndpoint& endpoint);

class LaneRecovery {
 public:
  enum class State : uint8_t { kUp, kFailed, kReplaced, kJoined };
  enum class Step : uint8_t { kWait, kReplace, kSendOffer, kJoin, kSendReady, kUse };

  State state() const { return state_; }
  bool up() const { return state_ == State::kUp; }
  uint32_t generation() const { return generation_; }
  Instant deadline() const { return deadline_; }

  void on_failed(Instant deadline);  // The lane must be up again by `deadline`.
  // Whether the new connection may fail before we use it: by itself, or because the peer uses it
  // before we know that it is joined. Recovery then goes on to kUp, where the lane fails again.
  bool may_fail_again() const { return state_ == State::kReplaced || state_ == State::kJoined; }
  void on_failed_again() { failed_again_ = true; }
  bool failed_again() const { return failed_again_; }
  // False: the peer may not send this message now. An offer for a lane that is up means that the
  // peer's end has failed, so this end must fail, too.
  bool on_message(const RecoveryMessage& message);
  // The peer has offered a new connection, and waits for our offer.
  bool offered() const { return offer_.has_value(); }
  const RecoveryMessage& offer() const { return *offer_; }

  Step next(bool path_ready) const;  // The next step; `path_ready`: a new connection may be made.
  void on_replaced() { go_to(State::kReplaced); }
  void on_sent() { sent_ = true; }
  void on_joined() { go_to(State::kJoined); }
  bool on_used();  // True: the new connection has failed meanwhile.

 private:
  void go_to(State state) {
    state_ = state;
    sent_ = false;
  }

  State state_ = State::kUp;
  bool sent_ = false;   // the message of the current state is sent
  bool ready_ = false;  // the peer has sent kReady
  bool failed_again_ = false;
  uint32_t generation_ = 0;
  Instant deadline_ = Instant::never();
  std::optional<RecoveryMessage> offer_;
};

}  // namespace pacecar
