// The fields of an Ethernet frame that a switch reads and writes. A frame without a complete IP
// packet is forwarded unchanged. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/units.h"
#include "transport/wire/packet.h"

namespace pacecar {

inline constexpr size_t kEthernetBytes = 14;
inline constexpr size_t kTagBytes = 4;  // of a VLAN

// A MAC address as a number; the first byte is the highest of 48 bits.
using MacNumber = uint64_t;
MacNumber destination_of(std::span<const uint8_t> frame);  // of kEthernetBytes at least
MacNumber source_of(std::span<const uint8_t> frame);
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

// What trimming leaves of a data packet of Pacecar's extended wire mode, headers up to its own;
// 0 for every other frame.
Bytes kept_when_trimmed(std::span<const uint8_t> frame, const FrameHeaders& headers);

// Marks the frame: ECN "congestion experienced", IPv4 header checksum kept right.
void set_congestion(std::span<uint8_t> frame, const FrameHeaders& headers);
// Makes the lengths and checksums of IP and UDP those of a frame that ends with `frame`.
void set_lengths(std::span<uint8_t> frame, const FrameHeaders& headers);

// The Internet checksum (RFC 1071): the sum of 16-bit words, then what is stored. At most 64 KiB.
uint32_t sum_of(std::span<const uint8_t> bytes, uint32_t sum = 0);
uint16_t internet_checksum(uint32_t sum);
// Completes a checksum that the sender has left to the device: from `start` to the frame's end,
// stored at `at`, which holds the sum of the pseudo header. False if these lie outside.
bool complete_checksum(std::span<uint8_t> frame, size_t start, size_t at);

}  // namespace pacecar
