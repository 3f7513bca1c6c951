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

enum class SendTimeout : uint8_t {
  kNotYet,
  kRepair,    // something is to be sent again
  kPeerDead,  // the limit of silence has passed
};

}  // namespace pacecar
