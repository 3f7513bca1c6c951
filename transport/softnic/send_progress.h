// What events change in a sending half, in any mode. Pure; any thread.
#pragma once

#include <cstdint>

#include "transport/base/units.h"
#include "transport/nic/nic.h"

namespace pacecar {

// The effect of an acknowledgement, a refusal or a timeout.
struct SendProgress {
  Duration rtt;  // of the network alone, without the time in both hosts; 0: none
  Bytes acked = 0;
  Bytes marked = 0;
  Bytes lost = 0;
  Bytes trimmed = 0;
  Bytes dropped = 0;       // posted bytes that are not acknowledged, and never will be
  Duration trimmed_rtt;    // 0: none
  bool timed_out = false;  // a long silence: a sign of congestion
  bool rerouting = false;  // a search for a better path is in progress
};

// Each of the first kTimeoutsInVain timeouts in a row doubles the wait. With fewer unanswered
// probes a silent peer is not dead: this host may have been stopped or overloaded meanwhile.
inline constexpr uint32_t kTimeoutsInVain = 6;

// The part of a peer's silence for which this host is to blame: it noticed a timeout so late that
// it must have been stopped or must not have polled.
inline Duration own_silence(Instant deadline, Instant now) {
  constexpr Duration kStopped = Duration::from_ms(100);
  return now - deadline < kStopped ? Duration() : now - deadline;
}

// Memory that may not be read any more: a region that was deregistered, or what lies at an address.
struct GoneMemory {
  uint32_t key = 0;  // 0: by address
  const uint8_t* at = nullptr;

  bool holds(const WorkRequest& write) const {
    return key != 0 ? write.local_key == key
                    : at >= write.local && at < write.local + write.length;
  }
};

enum class SendTimeout : uint8_t {
  kNotYet,
  kRepair,    // a probe or a retransmission is to be sent
  kPeerDead,  // the silence limit has passed, and the peer was probed often enough
};

}  // namespace pacecar
