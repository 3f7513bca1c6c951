// What a sending half tells of its packets on their way: in either wire mode.
#pragma once

#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

// What an acknowledgement, a refusal or a timeout told.
struct SendProgress {
  Duration rtt;  // of the network alone, without the time in both hosts; 0: none
  Bytes acked = 0;
  Bytes marked = 0;
  Bytes lost = 0;
  Bytes trimmed = 0;
  Duration trimmed_rtt;    // 0: none
  bool timed_out = false;  // nothing came back for long: a sign of congestion
};

// Timeouts in a row double the wait so often; a peer that was asked less often in vain is not dead,
// however long ago it was heard: this host may have been stopped meanwhile, or have hardly any
// time.
inline constexpr uint32_t kTimeoutsInVain = 6;

enum class SendTimeout : uint8_t {
  kNotYet,
  kRepair,    // something is to be sent again
  kPeerDead,  // the limit of silence has passed, and it was asked often enough
};

}  // namespace pacecar
