// In-band network telemetry: each switch's report on the egress port that a packet left through.
// Stamped by switches, echoed by the receiver, read by congestion controls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pacecar {

// The longest way that is recorded; later hops are not stamped.
inline constexpr size_t kMaxTelemetryHops = 6;

// One hop, as it was when the packet left. Times and counts wrap: only differences mean something.
struct TelemetryHop {
  uint32_t time_ns = 0;
  uint32_t sent_bytes = 0;   // by this port, this packet included
  uint32_t queue_bytes = 0;  // left behind in the port's data queue
  uint32_t rate_mbps = 0;    // of the port; 0 is refused by readers

  bool operator==(const TelemetryHop&) const = default;
};

}  // namespace pacecar
