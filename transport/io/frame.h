// Makes and reads Ethernet frames that carry UDP over IPv4 or IPv6. Pure; any thread. UDP checksums
// are written as 0, which RoCE v2 allows for both families (annex A17, 17.4.5.2): the payload has a
// better checksum, or a device computes the UDP one. IPv4 header checksums are made and checked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/wire/big_endian.h"
#include "transport/wire/packet.h"

namespace pacecar {

using MacAddress = std::array<uint8_t, 6>;

inline constexpr MacAddress kBroadcastMac = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
inline constexpr size_t kVlanTagBytes = 4;
inline constexpr size_t kMaxFrameHeaderBytes = 14 + kVlanTagBytes + 40 + 8;

namespace frame {

inline constexpr uint16_t kIpv4 = 0x0800;
inline constexpr uint16_t kArp = 0x0806;
inline constexpr uint16_t kVlan = 0x8100;
inline constexpr uint16_t kIpv6 = 0x86DD;

// Sizes of headers without options.
inline constexpr size_t kIpv4Bytes = 20;
inline constexpr size_t kIpv6Bytes = 40;
inline constexpr size_t kUdpBytes = 8;
// Mask of an IPv4 header's more-fragments flag and offset: a fragment has one of these bits.
inline constexpr uint32_t kMoreFragmentsOrOffset = 0x3FFF;

inline void put16(size_t value, uint8_t* to) { wire::store_be16(static_cast<uint16_t>(value), to); }

Address ipv4_address(const uint8_t* bytes);  // An IPv4 address of 4 bytes, without a port.

// The one's complement sum of RFC 1071 over 16-bit words; an odd last byte counts as a high one.
uint32_t sum16(std::span<const uint8_t> bytes, uint32_t sum = 0);
uint16_t fold(uint32_t sum);

using Vlan = std::optional<uint16_t>;  // A VLAN's number (12 bits); nullopt: untagged.

// The payload of an Ethernet frame and its type; nullopt if the frame is too short. Reads tagged
// and untagged frames: the device filters VLANs.
struct Ethernet {
  std::span<const uint8_t> bytes;
  uint16_t type = 0;
};
std::optional<Ethernet> read_ethernet(std::span<const uint8_t> frame);

// Returns the header's length, 14 or 18. The priority of a tagged frame is 0.
size_t write_ethernet(const MacAddress& to, const MacAddress& from, const Vlan& vlan, uint16_t type,
                      uint8_t* out);

}  // namespace frame

struct FrameEnds {
  MacAddress source_mac{};
  MacAddress destination_mac{};
  Address source;  // source and destination are of one family; their ports are ignored
  Address destination;
  frame::Vlan vlan = std::nullopt;
  uint32_t fragment = kIpv4Fragment;  // identification, flags and offset of an IPv4 header
};

// The headers of packets to one peer, without the fields that differ from packet to packet.
class HeaderTemplate {
 public:
  HeaderTemplate() = default;
  explicit HeaderTemplate(const FrameEnds& ends);

  size_t size() const { return size_; }
  // Writes size() bytes; `to` has room for kMaxFrameHeaderBytes. `traffic_class` includes ECN.
  void write(uint16_t source_port, uint16_t destination_port, uint8_t traffic_class,
             size_t datagram_bytes, uint8_t* to) const;

 private:
  std::array<uint8_t, kMaxFrameHeaderBytes> bytes_{};
  uint8_t size_ = 0;
  uint8_t ip_at_ = 0;
  bool ipv4_ = false;
  bool tagged_ = false;
  uint32_t ipv4_sum_ = 0;  // of the IPv4 header without traffic class and length
};

struct FrameDatagram {
  std::span<const uint8_t> bytes;  // what UDP carries
  Address source;
  Address destination;
  uint32_t fragment = kIpv4Fragment;  // identification, flags and offset of an IPv4 header
  Ecn ecn = Ecn::kNotCapable;
};

// The UDP datagram in the frame; nullopt for other protocols, IP fragments, IPv6 extension headers,
// lengths that contradict each other, and wrong IPv4 header checksums.
std::optional<FrameDatagram> read_datagram(const frame::Ethernet& ethernet);

// False for a frame whose UDP datagram does not match its checksum (RFC 768, RFC 8200 section 8.1).
// A checksum of 0 means that there is none.
bool has_right_udp_checksum(std::span<const uint8_t> frame);

// Computes the checksum of the UDP datagram in a frame, if there is one; the checksum must be 0.
void set_udp_checksum(std::span<uint8_t> frame);

}  // namespace pacecar
