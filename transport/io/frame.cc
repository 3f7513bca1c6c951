#include "transport/io/frame.h"

#include <algorithm>
#include <cstring>

#include "transport/wire/address.h"

namespace pacecar {

using wire::load_be16;

namespace frame {
namespace {

constexpr size_t kMacs = 12;
constexpr size_t kTypeBytes = 2;

}  // namespace

uint32_t sum16(std::span<const uint8_t> bytes, uint32_t sum) {
  // Two words at a time: in one's complement, 2^16 counts as 1.
  uint64_t pairs = sum;
  size_t i = 0;
  for (; i + 3 < bytes.size(); i += 4) pairs += wire::load_be32(&bytes[i]);
  for (; i + 1 < bytes.size(); i += 2) pairs += load_be16(&bytes[i]);
  if (i < bytes.size()) pairs += static_cast<uint64_t>(bytes[i] << 8);
  return static_cast<uint32_t>((pairs >> 32) + (pairs >> 16 & 0xFFFF) + (pairs & 0xFFFF));
}

uint16_t fold(uint32_t sum) {
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

Address ipv4_address(const uint8_t* bytes) {
  Address address;
  std::ranges::copy(kIpv4Prefix, address.ip.begin());
  std::copy_n(bytes, 4, address.ip.begin() + kIpv4Prefix.size());
  return address;
}

std::optional<Ethernet> read_ethernet(std::span<const uint8_t> frame) {
  size_t type_at = kMacs;
  if (frame.size() < type_at + kTypeBytes) return std::nullopt;
  if (load_be16(&frame[type_at]) == kVlan) {
    type_at += kVlanTagBytes;
    if (frame.size() < type_at + kTypeBytes) return std::nullopt;
  }
  return Ethernet{.bytes = frame.subspan(type_at + kTypeBytes), .type = load_be16(&frame[type_at])};
}

size_t write_ethernet(const MacAddress& to, const MacAddress& from, const Vlan& vlan, uint16_t type,
                      uint8_t* out) {
  std::ranges::copy(to, out);
  std::ranges::copy(from, out + to.size());
  size_t at = kMacs;
  if (vlan) {
    put16(kVlan, out + at);
    put16(*vlan, out + at + kTypeBytes);
    at += kVlanTagBytes;
  }
  put16(type, out + at);
  return at + kTypeBytes;
}

}  // namespace frame

namespace {

using frame::kIpv4Bytes;
using frame::kIpv6Bytes;
using frame::kUdpBytes;
using frame::put16;

constexpr uint8_t kHopLimit = 64;
constexpr uint8_t kUdp = 17;
constexpr size_t kUdpChecksumAt = 6;
constexpr size_t kIpv4FragmentAt = 4;
constexpr size_t kIpv4ChecksumAt = 10;
constexpr size_t kIpv4SourceAt = 12;
constexpr size_t kIpv6SourceAt = 8;
constexpr int kVlanPriorityShift = 5;

// The UDP datagram that begins at `at` of an IP packet of `bytes`.
bool read_udp(std::span<const uint8_t> bytes, size_t at, FrameDatagram& datagram) {
  if (bytes.size() < at + kUdpBytes) return false;
  const uint8_t* udp = &bytes[at];
  const size_t length = load_be16(udp + 4);
  if (length < kUdpBytes || length > bytes.size() - at) return false;
  datagram.bytes = bytes.subspan(at + kUdpBytes, length - kUdpBytes);
  datagram.source.port = load_be16(udp);
  datagram.destination.port = load_be16(udp + 2);
  return true;
}

std::optional<FrameDatagram> read_ipv4(std::span<const uint8_t> packet) {
  if (packet.size() < kIpv4Bytes || packet[0] >> 4 != 4 || packet[9] != kUdp) return std::nullopt;
  const size_t header = static_cast<size_t>(packet[0] & 0x0F) * 4;
  const size_t length = load_be16(&packet[2]);
  if (header < kIpv4Bytes || length < header || length > packet.size()) return std::nullopt;
  FrameDatagram datagram;
  datagram.fragment = wire::load_be32(&packet[kIpv4FragmentAt]);
  if ((datagram.fragment & frame::kMoreFragmentsOrOffset) != 0) return std::nullopt;
  if (frame::fold(frame::sum16(packet.first(header))) != 0xFFFF) return std::nullopt;
  if (!read_udp(packet.first(length), header, datagram)) return std::nullopt;
  datagram.ecn = static_cast<Ecn>(packet[1] & 3);
  datagram.source.ip = frame::ipv4_address(&packet[kIpv4SourceAt]).ip;
  datagram.destination.ip = frame::ipv4_address(&packet[kIpv4SourceAt + 4]).ip;
  return datagram;
}

std::optional<FrameDatagram> read_ipv6(std::span<const uint8_t> packet) {
  if (packet.size() < kIpv6Bytes || packet[0] >> 4 != 6 || packet[6] != kUdp) return std::nullopt;
  const size_t length = kIpv6Bytes + load_be16(&packet[4]);
  if (length > packet.size()) return std::nullopt;
  FrameDatagram datagram;
  if (!read_udp(packet.first(length), kIpv6Bytes, datagram)) return std::nullopt;
  datagram.ecn = static_cast<Ecn>(packet[1] >> 4 & 3);
  std::copy_n(&packet[kIpv6SourceAt], 16, datagram.source.ip.begin());
  std::copy_n(&packet[kIpv6SourceAt + 16], 16, datagram.destination.ip.begin());
  return datagram;
}

std::optional<FrameDatagram> find_datagram(std::span<const uint8_t> frame) {
  const auto ethernet = frame::read_ethernet(frame);
  return ethernet ? read_datagram(*ethernet) : std::nullopt;
}

// The sum over pseudo header, UDP header and payload: 0xFFFF if the checksum is right.
uint16_t udp_sum(const FrameDatagram& datagram) {
  const std::span udp(datagram.bytes.data() - kUdpBytes, kUdpBytes + datagram.bytes.size());
  // The prefix of an IPv4 address adds 0 in one's complement.
  uint32_t sum = kUdp + static_cast<uint32_t>(udp.size());
  for (const Address& end : {datagram.source, datagram.destination}) {
    sum += frame::fold(frame::sum16(end.ip));
  }
  return frame::fold(frame::sum16(udp, sum));
}

}  // namespace

HeaderTemplate::HeaderTemplate(const FrameEnds& ends)
    : ipv4_(is_ipv4(ends.destination)), tagged_(ends.vlan.has_value()) {
  ip_at_ = static_cast<uint8_t>(
      frame::write_ethernet(ends.destination_mac, ends.source_mac, ends.vlan,
                            ipv4_ ? frame::kIpv4 : frame::kIpv6, bytes_.data()));
  uint8_t* ip = &bytes_[ip_at_];
  if (ipv4_) {
    ip[0] = 0x45;  // version 4, five words
    wire::store_be32(ends.fragment, ip + kIpv4FragmentAt);
    ip[8] = kHopLimit;
    ip[9] = kUdp;
    std::ranges::copy(std::span(ends.source.ip).last(4), ip + kIpv4SourceAt);
    std::ranges::copy(std::span(ends.destination.ip).last(4), ip + kIpv4SourceAt + 4);
    ipv4_sum_ = frame::sum16({ip, kIpv4Bytes});
  } else {
    ip[0] = 0x60;
    ip[6] = kUdp;
    ip[7] = kHopLimit;
    std::ranges::copy(ends.source.ip, ip + kIpv6SourceAt);
    std::ranges::copy(ends.destination.ip, ip + kIpv6SourceAt + 16);
  }
  size_ = static_cast<uint8_t>(ip_at_ + (ipv4_ ? kIpv4Bytes : kIpv6Bytes) + kUdpBytes);
}

void HeaderTemplate::write(uint16_t source_port, uint16_t destination_port, uint8_t traffic_class,
                           size_t datagram_bytes, uint8_t* to) const {
  std::memcpy(to, bytes_.data(), bytes_.size());
  uint8_t* ip = to + ip_at_;
  const size_t udp_bytes = kUdpBytes + datagram_bytes;
  // The upper three bits of the DSCP, as IEEE 802.1Q's priority.
  if (tagged_) to[14] = static_cast<uint8_t>(to[14] | traffic_class >> 5 << kVlanPriorityShift);
  if (ipv4_) {
    const size_t length = kIpv4Bytes + udp_bytes;
    ip[1] = traffic_class;
    put16(length, ip + 2);
    const uint32_t sum = ipv4_sum_ + traffic_class + static_cast<uint32_t>(length);
    put16(static_cast<uint16_t>(~frame::fold(sum)), ip + kIpv4ChecksumAt);
  } else {
    ip[0] = static_cast<uint8_t>(0x60 | traffic_class >> 4);
    ip[1] = static_cast<uint8_t>(traffic_class << 4);
    put16(udp_bytes, ip + 4);
  }
  uint8_t* udp = to + size_ - kUdpBytes;
  put16(source_port, udp);
  put16(destination_port, udp + 2);
  put16(udp_bytes, udp + 4);
}

std::optional<FrameDatagram> read_datagram(const frame::Ethernet& ethernet) {
  if (ethernet.type == frame::kIpv4) return read_ipv4(ethernet.bytes);
  if (ethernet.type == frame::kIpv6) return read_ipv6(ethernet.bytes);
  return std::nullopt;
}

bool has_right_udp_checksum(std::span<const uint8_t> frame) {
  const auto found = find_datagram(frame);
  const bool checked = found && load_be16(found->bytes.data() - kUdpBytes + kUdpChecksumAt) != 0;
  return !checked || udp_sum(*found) == 0xFFFF;
}

void set_udp_checksum(std::span<uint8_t> frame) {
  const auto found = find_datagram(frame);
  if (!found) return;
  const auto checksum = static_cast<uint16_t>(~udp_sum(*found));
  const auto udp_at = static_cast<size_t>(found->bytes.data() - frame.data()) - kUdpBytes;
  put16(checksum == 0 ? 0xFFFF : checksum, &frame[udp_at + kUdpChecksumAt]);
}

}  // namespace pacecar
