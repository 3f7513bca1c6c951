// Telemetry in a real network: after a data packet of the extended mode and its trailer, each
// switch appends a record of its hop, and a last word has their number. README.md has the layout.
// It is not authenticated; a packet whose own bytes look like a tail, one in 2^32, fails its
// checksum and is retransmitted with another time stamp.
//
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/telemetry.h"
#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar::wire {

constexpr size_t telemetry_tail_bytes(size_t hops) { return kTelemetryHopBytes * hops + 4; }

// Writes telemetry_tail_bytes(hops.size()), which `to` must hold. 1 to kMaxTelemetryHops hops.
void encode_telemetry_tail(std::span<const TelemetryHop> hops, std::span<uint8_t> to);

// How many bytes of `datagram` are a tail; 0: none.
size_t find_telemetry_tail(std::span<const uint8_t> datagram);
// Reads a tail that was found; returns the number of hops.
size_t decode_telemetry_tail(std::span<const uint8_t> tail,
                             std::span<TelemetryHop, kMaxTelemetryHops> hops);

}  // namespace pacecar::wire
