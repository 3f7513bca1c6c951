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
  store_telemetry(hops, to.data());
  store_be32(kMark | static_cast<uint32_t>(hops.size()), &to[kTelemetryHopBytes * hops.size()]);
}

size_t find_telemetry_tail(std::span<const uint8_t> datagram) {
  constexpr size_t kLeast = kDataHeaderBytes + kChecksumBytes;
  if (datagram.size() < kLeast + telemetry_tail_bytes(1)) return 0;
  const uint32_t last = load_be32(&datagram[datagram.size() - 4]);
  const size_t hops = last & kHopsMask;
  if ((last & ~kHopsMask) != kMark || hops == 0 || hops > kMaxTelemetryHops) return 0;
  const size_t bytes = telemetry_tail_bytes(hops);
  if (datagram.size() < kLeast + bytes) return 0;
  return TelemetryView(datagram.last(bytes)).valid() ? bytes : 0;
}

size_t decode_telemetry_tail(std::span<const uint8_t> tail,
                             std::span<TelemetryHop, kMaxTelemetryHops> hops) {
  const TelemetryView view(tail);
  for (size_t i = 0; i < view.hops(); ++i) hops[i] = view[i];
  return view.hops();
}

}  // namespace pacecar::wire
