#include "bench/switch/frame_headers.h"

#include "transport/wire/big_endian.h"
#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

constexpr uint16_t kIpv4Type = 0x0800;
constexpr uint16_t kIpv6Type = 0x86DD;
constexpr uint16_t kVlanType = 0x8100;
constexpr size_t kMacBytes = 6;
constexpr size_t kIpv4Bytes = 20;
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kUdpBytes = 8;
constexpr uint8_t kUdp = 17;
constexpr uint16_t kFragmentMask = 0x3FFF;  // "more fragments", and the offset
constexpr size_t kIpv4ChecksumAt = 10;
constexpr size_t kUdpChecksumAt = 6;

// What fits, as a length in a header does.
void put16(size_t value, uint8_t* to) { wire::store_be16(static_cast<uint16_t>(value), to); }

MacNumber mac_at(const uint8_t* from) {
  MacNumber address = 0;
  for (size_t i = 0; i < kMacBytes; ++i) address = address << 8 | from[i];
  return address;
}

void read_ipv4(std::span<const uint8_t> frame, bool cut, FrameHeaders& headers) {
  const uint8_t* ip = &frame[headers.ip_at];
  const size_t header = static_cast<size_t>(ip[0] & 0x0F) * 4;
  const size_t total = wire::load_be16(ip + 2);
  const bool complete = cut || total <= frame.size() - headers.ip_at;
  if (header < kIpv4Bytes || total < header || !complete) {
    headers = {};
    return;
  }
  headers.ipv4 = true;
  headers.traffic_class = ip[1];
  headers.end = headers.ip_at + total;
  const bool whole = (wire::load_be16(ip + 6) & kFragmentMask) == 0;
  if (whole && ip[9] == kUdp && total >= header + kUdpBytes)
    headers.udp_at = headers.ip_at + header;
}

void read_ipv6(std::span<const uint8_t> frame, bool cut, FrameHeaders& headers) {
  const uint8_t* ip = &frame[headers.ip_at];
  const size_t total = kIpv6Bytes + wire::load_be16(ip + 4);
  if (!cut && total > frame.size() - headers.ip_at) {
    headers = {};
    return;
  }
  headers.traffic_class = static_cast<uint8_t>((ip[0] & 0x0F) << 4 | ip[1] >> 4);
  headers.end = headers.ip_at + total;
  if (ip[6] == kUdp && total >= kIpv6Bytes + kUdpBytes) headers.udp_at = headers.ip_at + kIpv6Bytes;
}

void set_ipv4_checksum(uint8_t* ip) {
  put16(0, ip + kIpv4ChecksumAt);
  put16(internet_checksum(sum_of({ip, static_cast<size_t>(ip[0] & 0x0F) * 4})),
        ip + kIpv4ChecksumAt);
}

// Over the pseudo header, the UDP header and what it carries.
void set_udp_checksum(std::span<uint8_t> frame, const FrameHeaders& headers) {
  const size_t addresses_at = headers.ip_at + (headers.ipv4 ? 12 : 8);
  const auto addresses = frame.subspan(addresses_at, headers.ipv4 ? 8 : 32);
  const auto datagram = frame.subspan(headers.udp_at);
  uint8_t* checksum = &datagram[kUdpChecksumAt];
  put16(0, checksum);
  const auto pseudo = static_cast<uint32_t>(kUdp + datagram.size());
  const uint16_t value = internet_checksum(sum_of(datagram, sum_of(addresses, pseudo)));
  put16(value == 0 ? 0xFFFF : value, checksum);
}

}  // namespace

MacNumber destination_of(std::span<const uint8_t> frame) { return mac_at(frame.data()); }
MacNumber source_of(std::span<const uint8_t> frame) { return mac_at(&frame[kMacBytes]); }

FrameHeaders read_headers(std::span<const uint8_t> frame, bool cut) {
  FrameHeaders headers;
  size_t type_at = 2 * kMacBytes;
  if (frame.size() < kEthernetBytes + kTagBytes) return headers;
  if (wire::load_be16(&frame[type_at]) == kVlanType) type_at += kTagBytes;
  const uint16_t type = wire::load_be16(&frame[type_at]);
  headers.ip_at = type_at + 2;
  const size_t room = frame.size() - headers.ip_at;
  if (type == kIpv4Type && room >= kIpv4Bytes && frame[headers.ip_at] >> 4 == 4) {
    read_ipv4(frame, cut, headers);
  } else if (type == kIpv6Type && room >= kIpv6Bytes && frame[headers.ip_at] >> 4 == 6) {
    read_ipv6(frame, cut, headers);
  } else {
    headers = {};
  }
  return headers;
}

Bytes kept_when_trimmed(std::span<const uint8_t> frame, const FrameHeaders& headers) {
  if (headers.udp_at == 0) return 0;
  const size_t udp_bytes = wire::load_be16(&frame[headers.udp_at + 4]);
  if (udp_bytes < kUdpBytes || headers.udp_at + udp_bytes > headers.end) return 0;
  const auto datagram = frame.subspan(headers.udp_at + kUdpBytes, udp_bytes - kUdpBytes);
  // Only its ends can tell what protects the packet: 55 bits of the header are always the same.
  wire::DataHeader header;
  const bool ours =
      datagram.size() > wire::kDataHeaderBytes + wire::kChecksumBytes &&
      wire::decode_trimmed(datagram.first(wire::kDataHeaderBytes), header);
  return ours ? headers.udp_at + kUdpBytes + wire::kDataHeaderBytes : 0;
}

void set_congestion(std::span<uint8_t> frame, const FrameHeaders& headers) {
  if (headers.ip_at == 0) return;
  uint8_t* ip = &frame[headers.ip_at];
  if (headers.ipv4) {
    ip[1] |= static_cast<uint8_t>(Ecn::kCongestion);
    set_ipv4_checksum(ip);
  } else {
    ip[1] |= static_cast<uint8_t>(static_cast<uint8_t>(Ecn::kCongestion) << 4);
  }
}

void set_lengths(std::span<uint8_t> frame, const FrameHeaders& headers) {
  uint8_t* ip = &frame[headers.ip_at];
  const size_t ip_bytes = frame.size() - headers.ip_at;
  if (headers.ipv4) {
    put16(ip_bytes, ip + 2);
    set_ipv4_checksum(ip);
  } else {
    put16(ip_bytes - kIpv6Bytes, ip + 4);
  }
  put16(frame.size() - headers.udp_at, &frame[headers.udp_at + 4]);
  set_udp_checksum(frame, headers);
}

// 64 KiB and what was summed before do not overflow.
uint32_t sum_of(std::span<const uint8_t> bytes, uint32_t sum) {
  size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) sum += wire::load_be16(&bytes[i]);
  return i < bytes.size() ? sum + (uint32_t{bytes[i]} << 8) : sum;
}

uint16_t internet_checksum(uint32_t sum) {
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

bool complete_checksum(std::span<uint8_t> frame, size_t start, size_t at) {
  if (start >= frame.size() || at < start || at + 2 > frame.size()) return false;
  const uint16_t value = internet_checksum(sum_of(frame.subspan(start)));
  put16(value == 0 ? 0xFFFF : value, &frame[at]);
  return true;
}

}  // namespace pacecar
