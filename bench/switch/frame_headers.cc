#include "bench/switch/frame_headers.h"

#include "transport/io/frame.h"
#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

using frame::kIpv4Bytes;
using frame::kIpv6Bytes;
using frame::kUdpBytes;
using frame::put16;
using wire::load_be16;

constexpr uint8_t kUdp = 17;
constexpr size_t kIpv4ChecksumAt = 10;
constexpr size_t kUdpChecksumAt = 6;

void read_ipv4(std::span<const uint8_t> frame, bool cut, FrameHeaders& headers) {
  const uint8_t* ip = &frame[headers.ip_at];
  const size_t header = static_cast<size_t>(ip[0] & 0x0F) * 4;
  const size_t total = load_be16(ip + 2);
  const bool complete = cut || total <= frame.size() - headers.ip_at;
  if (header < kIpv4Bytes || total < header || !complete) {
    headers = {};
    return;
  }
  headers.ipv4 = true;
  headers.traffic_class = ip[1];
  headers.end = headers.ip_at + total;
  const bool whole = (load_be16(ip + 6) & frame::kMoreFragmentsOrOffset) == 0;
  if (whole && ip[9] == kUdp && total >= header + kUdpBytes)
    headers.udp_at = headers.ip_at + header;
}

void read_ipv6(std::span<const uint8_t> frame, bool cut, FrameHeaders& headers) {
  const uint8_t* ip = &frame[headers.ip_at];
  const size_t total = kIpv6Bytes + load_be16(ip + 4);
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
  const uint32_t sum = frame::sum16({ip, static_cast<size_t>(ip[0] & 0x0F) * 4});
  put16(static_cast<uint16_t>(~frame::fold(sum)), ip + kIpv4ChecksumAt);
}

}  // namespace

FrameHeaders read_headers(std::span<const uint8_t> frame, bool cut) {
  const auto ethernet = frame::read_ethernet(frame);
  if (!ethernet) return {};
  const size_t room = ethernet->bytes.size();
  FrameHeaders headers{.ip_at = frame.size() - room};
  if (ethernet->type == frame::kIpv4 && room >= kIpv4Bytes && ethernet->bytes[0] >> 4 == 4) {
    read_ipv4(frame, cut, headers);
  } else if (ethernet->type == frame::kIpv6 && room >= kIpv6Bytes && ethernet->bytes[0] >> 4 == 6) {
    read_ipv6(frame, cut, headers);
  } else {
    headers = {};
  }
  return headers;
}

Bytes kept_when_trimmed(std::span<const uint8_t> frame, const FrameHeaders& headers) {
  if (headers.udp_at == 0) return 0;
  const size_t udp_bytes = load_be16(&frame[headers.udp_at + 4]);
  if (udp_bytes < kUdpBytes || headers.udp_at + udp_bytes > headers.end) return 0;
  const auto datagram = frame.subspan(headers.udp_at + kUdpBytes, udp_bytes - kUdpBytes);
  // Only the ends of a flow know what protects its packets, so the checksum is not looked at: 55
  // bits of the header are always the same.
  wire::DataHeader header;
  const bool ours = datagram.size() > wire::kDataHeaderBytes + wire::kChecksumBytes &&
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
  put16(0, &frame[headers.udp_at + kUdpChecksumAt]);
  set_udp_checksum(frame);
}

bool complete_checksum(std::span<uint8_t> frame, size_t start, size_t at) {
  if (start >= frame.size() || at < start || at + 2 > frame.size()) return false;
  const auto value = static_cast<uint16_t>(~frame::fold(frame::sum16(frame.subspan(start))));
  put16(value == 0 ? 0xFFFF : value, &frame[at]);
  return true;
}

}  // namespace pacecar
