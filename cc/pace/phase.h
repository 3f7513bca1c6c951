// When the flows of a receiver send: at equal rates all have the same gap between bursts, and the
// bursts of different flows should not meet. A flow with slot s sends at the fraction bitreverse(s)
// of the gap; for every n the first n slots spread evenly (van der Corput). Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cc/rate_law.h"
#include "transport/base/units.h"

namespace pacecar {

// End hosts whose jitter is longer than a burst on the line keep no phases.
inline bool keeps_phases(const FlowEnvironment& environment) {
  return environment.jitter <= environment.line_rate.time_for(environment.burst_bytes);
}

// A flow's burst in payload bytes: the packets sent in a quarter of a round trip, or in the hosts'
// jitter if longer; between one packet and the NIC's burst. Both ends compute the same value.
inline Bytes pace_burst(Rate rate, const FlowEnvironment& environment) {
  const Bytes mtu = environment.mtu;
  const Duration moment = std::max(base_round_trip(environment) / 4, environment.jitter);
  return std::clamp(rate.bytes_in(moment) / mtu * mtu, mtu, std::max(environment.burst_bytes, mtu));
}

// Bytes on the wire of `payload` bytes, in packets of up to `mtu`.
inline Bytes on_wire(Bytes payload, Bytes mtu, Bytes overhead) {
  return payload + (payload + mtu - 1) / mtu * overhead;
}

// Time between two bursts, in nanoseconds.
inline double pace_gap_ns(Rate rate, Bytes burst, Bytes mtu, Bytes overhead) {
  return static_cast<double>(on_wire(burst, mtu, overhead)) * 8e9 / rate.real_bps();
}

// Fraction of the gap, 0 .. 1.
inline double pace_fraction(uint32_t slot) {
  uint32_t reversed = 0;
  for (int bit = 0; bit < 16; ++bit) reversed |= (slot >> bit & 1) << (15 - bit);
  return static_cast<double>(reversed) / 65536.0;
}

// `ns` modulo `gap`, 0 .. gap.
inline double modulo(double ns, double gap) {
  const double rest = ns - gap * static_cast<double>(static_cast<int64_t>(ns / gap));
  return rest < 0 ? rest + gap : rest;
}

}  // namespace pacecar
