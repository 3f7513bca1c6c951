// Progress of a sending half, in either wire mode.
#pragma once

#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

// The effect of an acknowledgement, a refusal or a timeout.
struct SendProgress {
  Duration rtt;  // of the network alone, without the time in both hosts; 0: none
  Bytes acked = 0;
  Bytes marked = 0;
  Bytes lost = 0;
  Bytes trimmed = 0;
  Duration trimmed_rtt;    // 0: none
  bool timed_out = false;  // a long silence: a sign of congestion
};

// Timeouts in a row double the wait so often. A peer with fewer unanswered probes is not dead,
// however long it has been silent: this host may have been stopped or overloaded meanwhile.
inline constexpr uint32_t kTimeoutsInVain = 6;

// The part of a peer's silence that is our own: a timeout that is noticed so late that this host
// was stopped meanwhile, or did not poll.
inline Duration own_silence(Instant deadline, Instant now) {
  constexpr Duration kStopped = Duration::from_ms(100);
  return now - deadline < kStopped ? Duration() : now - deadline;
}

enum class SendTimeout : uint8_t {
  kNotYet,
  kRepair,    // something is to be sent
  kPeerDead,  // the silence limit has passed, and it was probed often enough
};

}  // namespace pacecar
