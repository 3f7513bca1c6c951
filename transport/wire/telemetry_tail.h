// Telemetry that switches append to a data packet of the extended mode, behind its trailer: a
// record for each hop, and a last word with the number of records. README.md has the layout. The
// tail is not authenticated. One packet in 2^32 ends in bytes that look like a tail; it fails its
// checksum and is retransmitted with another time stamp. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/telemetry.h"
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
