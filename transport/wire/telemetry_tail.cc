#include "transport/wire/telemetry_tail.h"

#include "transport/base/check.h"
#include "transport/wire/big_endian.h"

namespace pacecar::wire {
namespace {

constexpr uint32_t kMark = 0x494E'5400;  // "INT", then the number of hops
constexpr uint32_t kHopsMask = 0xFF;

}  // namespace

void encode_telemetry_tail(std::span<const TelemetryHop> hops, std::span<uint8_t> to) {
  PACECAR_CHECK(!hops.empty() && hops.size() <= kMaxTelemetryHops &&
                to.size() >= telemetry_tail_bytes(hops.size()));
  uint8_t* p = to.data();
  for (const TelemetryHop& hop : hops) {
    store_be32(hop.time_ns, p);
    store_be32(hop.sent_bytes, p + 4);
    store_be32(hop.queue_bytes, p + 8);
    store_be32(hop.rate_mbps, p + 12);
    p += kTelemetryHopBytes;
  }
  store_be32(kMark | static_cast<uint32_t>(hops.size()), p);
}

size_t find_telemetry_tail(std::span<const uint8_t> datagram) {
  constexpr size_t kLeast = kDataHeaderBytes + kChecksumBytes;
  if (datagram.size() < kLeast + telemetry_tail_bytes(1)) return 0;
  const uint32_t last = load_be32(&datagram[datagram.size() - 4]);
  const size_t hops = last & kHopsMask;
  if ((last & ~kHopsMask) != kMark || hops == 0 || hops > kMaxTelemetryHops) return 0;
  const size_t bytes = telemetry_tail_bytes(hops);
  if (datagram.size() < kLeast + bytes) return 0;
  const uint8_t* records = &datagram[datagram.size() - bytes];
  for (size_t i = 0; i < hops; ++i) {
    if (load_be32(records + i * kTelemetryHopBytes + 12) == 0) return 0;  // no port has rate 0
  }
  return bytes;
}

size_t decode_telemetry_tail(std::span<const uint8_t> tail,
                             std::span<TelemetryHop, kMaxTelemetryHops> hops) {
  const size_t count = tail.size() / kTelemetryHopBytes;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* from = &tail[i * kTelemetryHopBytes];
    hops[i] = {load_be32(from), load_be32(from + 4), load_be32(from + 8), load_be32(from + 12)};
  }
  return count;
}

}  // namespace pacecar::wire
