// What a NIC reports of a flow's data, for the congestion control.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/base/telemetry.h"
#include "transport/base/units.h"

namespace pacecar {

// A flow: a (source NIC, destination NIC) pair, numbered by the user of the NIC, 0 ..
// caps().flows-1. Its queue pairs share one pacer and one window.
using FlowId = uint32_t;

// A signal covers the time since the flow's last one. A flow that had to wait for its rate also
// signals when everything posted has been sent. A flow on credit signals whenever it has sent, with
// `sharing`: how many flows of the NIC, including itself, had something to send at that time and
// were allowed to.
struct FlowSignal {
  FlowId flow = 0;
  Duration rtt;          // of the newest packet acknowledged; 0 when there is none
  Bytes acked = 0;       // newly acknowledged payload bytes
  Bytes marked = 0;      // the part of `acked` that the network marked by ECN
  Bytes lost = 0;        // newly found missing
  Bytes trimmed = 0;     // newly found trimmed: a switch cut off their payload
  Bytes dropped = 0;     // of queue pairs that have ended: posted, and never acknowledged
  Duration trimmed_rtt;  // from sending the newest trimmed packet to its notice; 0: none
  uint32_t sharing = 0;  // see above; 0: not sent since the last signal
  Bytes in_flight = 0;   // after this signal
  Bytes sent = 0;        // by the flow since it began, retransmissions included
  // If not all packets pass: the largest that do, in bytes with the IP header. Stays until changed.
  uint32_t path_mtu = 0;
  bool rerouting = false;    // in search of a better path: later packets may take another
  bool timed_out = false;    // no acknowledgement for a whole timeout
  bool echo_marked = false;  // the packet that the newest acknowledgement answers was marked
  uint8_t hops = 0;          // of `telemetry`
  std::array<TelemetryHop, kMaxTelemetryHops> telemetry{};  // of that packet

  std::span<const TelemetryHop> path() const { return std::span(telemetry).first(hops); }
};

}  // namespace pacecar
