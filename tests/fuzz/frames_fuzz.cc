// Frames and datagrams as packet I/Os and the switch receive them: every part that is returned lies
// within the frame, whatever the headers say.
#include <algorithm>
#include <array>
#include <vector>

#include "bench/switch/frame_headers.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/io/dpdk/neighbors/neighbor_message.h"
#include "transport/io/frame.h"
#include "transport/io/switch_traces.h"
#include "transport/wire/telemetry_tail.h"

namespace pacecar::frames_fuzz {
namespace {

using Octets = std::span<const uint8_t>;

void expect_within(Octets part, Octets whole) {
  PACECAR_CHECK(part.empty() || (part.data() >= whole.data() &&
                                 part.data() + part.size() <= whole.data() + whole.size()));
}

void read_frame(Octets bytes) {
  if (const auto ethernet = frame::read_ethernet(bytes)) {
    expect_within(ethernet->bytes, bytes);
    if (const auto datagram = read_datagram(*ethernet)) expect_within(datagram->bytes, bytes);
    has_right_udp_checksum(bytes);
  }
  if (const auto message = read_neighbor_message(bytes)) {
    std::array<uint8_t, kMaxNeighborMessageBytes> out;
    PACECAR_CHECK(write_neighbor_message(*message, std::nullopt, out) <= out.size());
  }
}

void read_switched(Octets bytes) {
  if (bytes.size() < kEthernetBytes) return;
  const FrameHeaders headers = read_headers(bytes);
  PACECAR_CHECK(headers.ip_at <= bytes.size() && headers.udp_at <= bytes.size());
  PACECAR_CHECK(headers.end <= bytes.size());
  std::vector<uint8_t> frame(bytes.begin(), bytes.end());
  if (headers.ip_at != 0) {
    set_congestion(frame, headers);
    PACECAR_CHECK(kept_when_trimmed(bytes, headers) <= bytes.size());
    set_lengths(frame, headers);
  }
  static_cast<void>(complete_checksum(frame, bytes[0], bytes[1]));
}

// A datagram as raw sockets receive it, without an Ethernet header.
void read_raw(Octets bytes) {
  const auto datagram = read_datagram({.bytes = bytes, .type = frame::kIpv4});
  if (datagram) expect_within(datagram->bytes, bytes);
}

void read_traces(Octets bytes) {
  const size_t tail = wire::find_telemetry_tail(bytes);
  PACECAR_CHECK(tail <= bytes.size());
  SwitchTraces traces;
  const Address source;
  RxPacket packet{.bytes = bytes, .source = &source};
  traces.read({&packet, 1});
  expect_within(packet.bytes, bytes);
  PACECAR_CHECK(packet.telemetry.size() <= kMaxTelemetryHops);
}

}  // namespace

FUZZ_TARGET(frames) {
  const std::span bytes(data, size);
  read_frame(bytes);
  read_switched(bytes);
  read_raw(bytes);
  read_traces(bytes);
  return 0;
}

}  // namespace pacecar::frames_fuzz
