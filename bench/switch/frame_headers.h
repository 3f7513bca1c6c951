// The fields of an Ethernet frame that a switch reads and writes. A frame without a complete IP
// packet is forwarded unchanged. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/units.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/packet.h"

namespace pacecar {

inline constexpr size_t kEthernetBytes = 14;

// A MAC address as a number; the first byte is the highest of 48 bits. `frame` has kEthernetBytes
// at least.
using MacNumber = uint64_t;
inline MacNumber destination_of(std::span<const uint8_t> frame) {
  return wire::load_be64(frame.data()) >> 16;
}
inline MacNumber source_of(std::span<const uint8_t> frame) {
  return wire::load_be64(&frame[6]) >> 16;
}
constexpr bool is_group(MacNumber address) { return (address >> 40 & 1) != 0; }

// The positions of a frame's headers, from its beginning; 0: absent.
struct FrameHeaders {
  size_t ip_at = 0;
  bool ipv4 = false;
  uint8_t traffic_class = 0;  // DSCP and ECN
  size_t udp_at = 0;          // of a datagram that is not fragmented
  size_t end = 0;             // of the IP packet; Ethernet's padding may follow

  Ecn ecn() const { return static_cast<Ecn>(traffic_class & 3); }
};
// `cut`: the frame has been trimmed, and its lengths are those of the whole one.
FrameHeaders read_headers(std::span<const uint8_t> frame, bool cut = false);

// The bytes that trimming leaves of a data packet of Pacecar's extended mode: all headers, its own
// included. 0 for every other frame, which is not trimmed.
Bytes kept_when_trimmed(std::span<const uint8_t> frame, const FrameHeaders& headers);

// Sets ECN "congestion experienced", and corrects the IPv4 header checksum.
void set_congestion(std::span<uint8_t> frame, const FrameHeaders& headers);
// Sets the lengths and checksums of IP and UDP to those of a datagram that fills the frame.
void set_lengths(std::span<uint8_t> frame, const FrameHeaders& headers);

// Completes a checksum that the sender left to the device: it covers the frame from `start` on and
// is stored at `at`, where the sender put the sum of the pseudo header. False if these lie outside.
bool complete_checksum(std::span<uint8_t> frame, size_t start, size_t at);

}  // namespace pacecar
