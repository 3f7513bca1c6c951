// Whatever the bytes: no decoder reads out of bounds, and what decodes, encodes back to the same
// bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "tests/fuzz/fuzz_target.h"
#include "tests/support/wire_reencode.h"

namespace pacecar::wire::wire_fuzz {
namespace {

void try_every_decoder(std::span<const uint8_t> datagram) {
  DataHeader data;
  AckHeader ack;
  Nak nak;
  std::span<const uint8_t> payload;
  Bitmap bitmap;
  TelemetryView telemetry;
  const auto packet = body(datagram);
  const int accepted =
      decode(packet, data, payload) + decode(packet, ack, bitmap, telemetry) + decode(packet, nak);
  // The header of a trimmed data packet decodes on its own, and as it did within the packet.
  DataHeader trimmed;
  const bool whole = decode(packet, data, payload);
  const auto head = datagram.first(std::min(datagram.size(), kDataHeaderBytes));
  if (whole && !(decode_trimmed(head, trimmed) && trimmed == data)) std::abort();
  if (!whole && decode_trimmed(datagram, trimmed) && datagram.size() != kDataHeaderBytes) {
    std::abort();
  }
  const auto again = reencode(datagram);
  if (accepted != (again ? 1 : 0)) std::abort();
  if (!again) return;
  if (again->size() != datagram.size()) std::abort();
  if (!std::equal(packet.begin(), packet.end(), again->begin())) std::abort();
  const bool same = std::equal(datagram.begin(), datagram.end(), again->begin());
  if (verify_checksum(datagram, packet.size(), Coverage::kHeader) != same) std::abort();
}

// What a datagram is taken apart into lies within it, one packet after another, and ends.
void take_apart(std::span<const uint8_t> datagram) {
  const uint8_t* at = datagram.data();
  const uint8_t* const end = at + datagram.size();
  while (!datagram.empty()) {
    const auto first = take_first(datagram, classify(datagram), kChecksumBytes);
    if (first.empty() || first.data() != at) std::abort();
    at += first.size();
    if (datagram.size() > static_cast<size_t>(end - at)) std::abort();
  }
}

}  // namespace

FUZZ_TARGET(wire) {
  try_every_decoder({data, size});
  take_apart({data, size});
  return 0;
}

}  // namespace pacecar::wire::wire_fuzz
