// KnownFrames: a fast path for frames whose headers are nearly the same as in an earlier frame. A
// few comparisons show that the headers match a frame that was parsed completely; then only the
// fields that may differ are read and checked. A table of fixed size, in which the newest frame
// replaces others. All in the header: the compiler inlines no code of files that are not compiled
// for DPDK's processors. Pure. Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/io/frame.h"
#include "transport/wire/big_endian.h"

namespace pacecar {

class KnownFrames {
 public:
  // Shorter frames, and frames with a VLAN tag, are never in the table.
  static constexpr size_t kLeastFrame = 80;

  // Sets `datagram` as read_datagram() would, but with the remembered frame's destination. False,
  // with `datagram` unchanged: call read_datagram().
  bool read(std::span<const uint8_t> frame, FrameDatagram& datagram) const;
  // Remembers the result of read_datagram() for a frame.
  void remember(std::span<const uint8_t> frame, const FrameDatagram& datagram);

 private:
  static constexpr unsigned kIndexBits = 6;
  static constexpr size_t kIpAt = 14;
  using Headers = std::array<uint8_t, kLeastFrame>;
  // 16 bytes, compared by one instruction if the processor has one.
  using Vector = uint64_t __attribute__((vector_size(16)));

  // Bits that are equal in all headers of one peer.
  struct Shape {
    size_t ip_bytes = 0;
    alignas(16) Headers same{};
  };
  static constexpr Shape make_shape(bool ipv4);

  struct Entry {
    alignas(16) Headers headers{};
    Address source;
    bool ipv4 = false;
    bool used = false;
  };

  static size_t index_of(const uint8_t* frame) {
    // Bytes of the sender's MAC address, and of its IP address, which differs behind a router.
    uint32_t words[2];
    std::memcpy(&words[0], frame + 8, sizeof words[0]);
    std::memcpy(&words[1], frame + 26, sizeof words[1]);
    return ((words[0] ^ words[1]) * 0x9E37'79B1U) >> (32 - kIndexBits);
  }
  static Vector vector_at(const uint8_t* at) {
    Vector vector;
    std::memcpy(&vector, at, sizeof vector);
    return vector;
  }
  static bool differs(const uint8_t* frame, const Headers& known, const Headers& same) {
    Vector different{};
#pragma GCC unroll 5
    for (size_t at = 0; at < same.size(); at += sizeof(Vector)) {
      different |= (vector_at(frame + at) ^ vector_at(&known[at])) & vector_at(&same[at]);
    }
    return (different[0] | different[1]) != 0;
  }
  static bool ipv4_checksum_is_right(const uint8_t* ip);

  static const std::array<Shape, 2> kShapes;
  std::array<Entry, 1U << kIndexBits> entries_;
};

constexpr KnownFrames::Shape KnownFrames::make_shape(bool ipv4) {
  Shape shape;
  shape.ip_bytes = ipv4 ? frame::kIpv4Bytes : frame::kIpv6Bytes;
  const size_t ip = kIpAt;
  const size_t udp = ip + shape.ip_bytes;
  for (size_t at = 0; at < udp + frame::kUdpBytes; ++at) shape.same[at] = 0xFF;
  const auto may_differ = [&shape](size_t from, size_t count) {
    for (size_t at = from; at < from + count; ++at) shape.same[at] = 0;
  };
  if (ipv4) {
    may_differ(ip + 1, 8);   // class, length, fragment word, hops
    may_differ(ip + 10, 2);  // checksum
  } else {
    shape.same[ip] = 0xF0;  // class and flow
    may_differ(ip + 1, 5);  // these, and length
    may_differ(ip + 7, 1);  // hops
  }
  may_differ(udp, 2);      // source port
  may_differ(udp + 4, 4);  // length, checksum
  return shape;
}

inline constexpr std::array<KnownFrames::Shape, 2> KnownFrames::kShapes = {make_shape(false),
                                                                           make_shape(true)};

inline bool KnownFrames::ipv4_checksum_is_right(const uint8_t* ip) {
  using wire::load_be32;
  uint64_t sum = uint64_t{load_be32(ip)} + load_be32(ip + 4) + load_be32(ip + 8) +
                 load_be32(ip + 12) + load_be32(ip + 16);
  sum = (sum >> 32) + (sum & 0xFFFF'FFFF);
  sum = (sum >> 16) + (sum & 0xFFFF);
  sum = (sum >> 16) + (sum & 0xFFFF);
  sum = (sum >> 16) + (sum & 0xFFFF);
  return sum == 0xFFFF;
}

inline bool KnownFrames::read(std::span<const uint8_t> frame, FrameDatagram& datagram) const {
  if (frame.size() < kLeastFrame) return false;
  const Entry& known = entries_[index_of(frame.data())];
  const Shape& shape = kShapes[known.ipv4 ? 1 : 0];
  if (!known.used || differs(frame.data(), known.headers, shape.same)) return false;
  const uint8_t* const ip = frame.data() + kIpAt;
  const uint8_t* const udp = ip + shape.ip_bytes;
  const bool ipv4 = known.ipv4;
  const size_t room = frame.size() - kIpAt - shape.ip_bytes;
  const size_t total = ipv4 ? wire::load_be16(ip + 2) - frame::kIpv4Bytes : wire::load_be16(ip + 4);
  const size_t length = wire::load_be16(udp + 4);
  // A total that is too small has wrapped.
  if (total > room || length > total || length < frame::kUdpBytes) return false;
  datagram.fragment = kIpv4Fragment;
  uint8_t ecn = ip[1] >> 4;
  if (ipv4) {
    const uint32_t fragment = wire::load_be32(ip + 4);
    if ((fragment & frame::kMoreFragmentsOrOffset) != 0 || !ipv4_checksum_is_right(ip))
      return false;
    datagram.fragment = fragment;
    ecn = ip[1];
  }
  datagram.bytes = {udp + frame::kUdpBytes, length - frame::kUdpBytes};
  datagram.source = known.source;
  datagram.source.port = wire::load_be16(udp);
  datagram.ecn = static_cast<Ecn>(ecn & 3);
  return true;
}

inline void KnownFrames::remember(std::span<const uint8_t> frame, const FrameDatagram& datagram) {
  constexpr uint8_t kPlainIpv4 = 0x45;  // version 4, no options
  constexpr uint8_t kVersion6 = 0x60;
  if (frame.size() < kLeastFrame) return;
  const uint8_t version = frame[kIpAt];
  if (wire::load_be16(&frame[kIpAt - 2]) == frame::kVlan) return;
  if (version != kPlainIpv4 && (version & 0xF0) != kVersion6) return;
  Entry& entry = entries_[index_of(frame.data())];
  std::ranges::copy(frame.first(kLeastFrame), entry.headers.begin());
  entry.source = datagram.source;
  entry.ipv4 = version == kPlainIpv4;
  entry.used = true;
}

}  // namespace pacecar
