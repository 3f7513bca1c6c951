#include "tests/attack/frame.h"

#include <algorithm>

#include "transport/wire/big_endian.h"
#include "transport/wire/extended.h"

namespace pacecar::attack {
namespace {

constexpr uint8_t kVersionAndLength = 0x45;  // IPv4, no options
constexpr uint8_t kUdp = 17;
constexpr uint8_t kIcmp = 1;
constexpr size_t kIcmpHeaderBytes = 8;
constexpr uint16_t kIpv4 = 0x0800;

// RFC 1071.
uint16_t ip_checksum(std::span<const uint8_t> header) {  // an even number of bytes
  uint32_t sum = 0;
  for (size_t i = 0; i < header.size(); i += 2) sum += wire::load_be16(&header[i]);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

bool is_data(std::span<const uint8_t> packet) {
  return wire::classify(packet) == wire::PacketKind::kData;
}

// The size of every datagram in a joined frame but the last: the next one begins where data for the
// same queue pair begins again. (A control word behind data in one datagram is for another one.)
size_t segment_bytes(std::span<const uint8_t> payload) {
  constexpr size_t kSameFrom = 1, kSameTo = 8;  // all of the BTH between opcode and PSN
  if (payload.size() < wire::kDataHeaderBytes || !is_data(payload)) return payload.size();
  const auto same = payload.subspan(kSameFrom, kSameTo - kSameFrom);
  for (auto rest = payload.subspan(wire::kDataHeaderBytes);;) {
    const auto found = std::ranges::search(rest, same);
    if (found.empty()) return payload.size();
    const auto at = static_cast<size_t>(found.begin() - payload.begin()) - kSameFrom;
    if (is_data(payload.subspan(at))) return at;
    rest = payload.subspan(at + kSameTo);
  }
}

// Writes the Ethernet and IP headers; returns where the IP payload begins.
uint8_t* begin_frame(const Datagram& datagram, uint8_t protocol, size_t ip_payload, Bytes& frame) {
  frame.assign(kEthernetBytes + kIpBytes + ip_payload, 0);
  std::ranges::copy(datagram.to.mac, frame.begin());
  std::ranges::copy(datagram.from.mac, frame.begin() + 6);
  wire::store_be16(kIpv4, &frame[12]);
  uint8_t* const ip = &frame[kEthernetBytes];
  ip[0] = kVersionAndLength;
  ip[1] = datagram.traffic_class;
  wire::store_be16(static_cast<uint16_t>(kIpBytes + ip_payload), ip + 2);
  ip[8] = 64;  // hops
  ip[9] = protocol;
  wire::store_be32(datagram.from.ip, ip + 12);
  wire::store_be32(datagram.to.ip, ip + 16);
  wire::store_be16(ip_checksum({ip, kIpBytes}), ip + 10);
  return ip + kIpBytes;
}

}  // namespace

std::vector<Datagram> datagrams_of(std::span<const uint8_t> frame) {
  if (frame.size() < kFrameHeaderBytes || wire::load_be16(&frame[12]) != kIpv4) return {};
  const auto ip = frame.subspan(kEthernetBytes);
  const auto udp = ip.subspan(kIpBytes);
  const size_t length = wire::load_be16(&udp[4]);
  if (ip[0] != kVersionAndLength || ip[9] != kUdp || length < kUdpBytes || length > udp.size()) {
    return {};
  }
  Datagram datagram{.from = {.ip = wire::load_be32(&ip[12]), .port = wire::load_be16(&udp[0])},
                    .to = {.ip = wire::load_be32(&ip[16]), .port = wire::load_be16(&udp[2])},
                    .traffic_class = ip[1]};
  std::copy_n(frame.begin(), 6, datagram.to.mac.begin());
  std::copy_n(frame.begin() + 6, 6, datagram.from.mac.begin());
  auto payload = udp.subspan(kUdpBytes, length - kUdpBytes);
  std::vector<Datagram> all;
  const size_t step = segment_bytes(payload);
  while (!payload.empty()) {
    const auto one = payload.first(std::min(step, payload.size()));
    datagram.payload.assign(one.begin(), one.end());
    all.push_back(datagram);
    payload = payload.subspan(one.size());
  }
  return all;
}

void encode(const Datagram& datagram, Bytes& frame) {
  const size_t udp_bytes = kUdpBytes + datagram.payload.size();
  uint8_t* const udp = begin_frame(datagram, kUdp, udp_bytes, frame);
  wire::store_be16(datagram.from.port, udp);
  wire::store_be16(datagram.to.port, udp + 2);
  wire::store_be16(static_cast<uint16_t>(udp_bytes), udp + 4);
  std::ranges::copy(datagram.payload, udp + kUdpBytes);
}

void encode(const IcmpError& error, const Datagram& of, uint32_t from_ip, Bytes& frame) {
  Bytes original;
  encode(of, original);
  const auto quoted = std::span(original).subspan(kEthernetBytes, kIpBytes + kUdpBytes);
  Datagram answer{.from = of.to, .to = of.from};
  answer.from.ip = from_ip;
  const size_t bytes = kIcmpHeaderBytes + quoted.size();
  uint8_t* const icmp = begin_frame(answer, kIcmp, bytes, frame);
  icmp[0] = error.type;
  icmp[1] = error.code;
  wire::store_be32(error.word, icmp + 4);
  std::ranges::copy(quoted, icmp + kIcmpHeaderBytes);
  wire::store_be16(ip_checksum({icmp, bytes}), icmp + 2);
}

}  // namespace pacecar::attack
