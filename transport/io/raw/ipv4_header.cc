#include "transport/io/raw/ipv4_header.h"

#include <algorithm>

#include "transport/wire/address.h"
#include "transport/wire/big_endian.h"

namespace pacecar {
namespace {

using wire::load_be16;
using wire::store_be16;

constexpr uint8_t kHopLimit = 64;
constexpr uint8_t kUdp = 17;
constexpr size_t kUdpBytes = 8;
constexpr size_t kFragmentAt = 4;
constexpr size_t kSourceAt = 12;
constexpr size_t kIpv4Bytes = 20;

Address address_at(const uint8_t* ip, const uint8_t* port) {
  Address address;
  std::ranges::copy(kIpv4Prefix, address.ip.begin());
  std::copy_n(ip, 4, address.ip.begin() + kIpv4Prefix.size());
  address.port = load_be16(port);
  return address;
}

// The bytes before UDP's header; 0 where there is none.
size_t ipv4_bytes(std::span<const uint8_t> packet) {
  if (packet.size() < kIpv4UdpBytes || packet[0] >> 4 != 4 || packet[9] != kUdp) return 0;
  const size_t header = static_cast<size_t>(packet[0] & 0x0F) * 4;
  return header < kIpv4Bytes || packet.size() < header + kUdpBytes ? 0 : header;
}

}  // namespace

void write_ipv4_udp(const Address& source, const Address& destination, uint8_t type_of_service,
                    size_t datagram_bytes, std::span<uint8_t, kIpv4UdpBytes> to) {
  uint8_t* ip = to.data();
  ip[0] = 0x45;  // version 4, five words
  ip[1] = type_of_service;
  store_be16(static_cast<uint16_t>(kIpv4UdpBytes + datagram_bytes), ip + 2);
  wire::store_be32(kIpv4Fragment, ip + kFragmentAt);
  ip[8] = kHopLimit;
  ip[9] = kUdp;
  store_be16(0, ip + 10);
  std::ranges::copy(std::span(source.ip).last(4), ip + kSourceAt);
  std::ranges::copy(std::span(destination.ip).last(4), ip + kSourceAt + 4);
  uint8_t* udp = ip + kIpv4Bytes;
  store_be16(source.port, udp);
  store_be16(destination.port, udp + 2);
  store_be16(static_cast<uint16_t>(kUdpBytes + datagram_bytes), udp + 4);
  store_be16(0, udp + 6);
}

std::optional<Address> ipv4_udp_destination(std::span<const uint8_t> packet) {
  const size_t header = ipv4_bytes(packet);
  if (header == 0) return std::nullopt;
  return address_at(&packet[kSourceAt + 4], &packet[header + 2]);
}

std::optional<Ipv4Datagram> read_ipv4_udp(std::span<const uint8_t> packet) {
  const size_t header = ipv4_bytes(packet);
  if (header == 0) return std::nullopt;
  const uint8_t* udp = &packet[header];
  const size_t udp_bytes = load_be16(udp + 4);
  if (udp_bytes < kUdpBytes || udp_bytes > packet.size() - header) return std::nullopt;
  return Ipv4Datagram{.bytes = packet.subspan(header + kUdpBytes, udp_bytes - kUdpBytes),
                      .source = address_at(&packet[kSourceAt], udp),
                      .fragment = wire::load_be32(&packet[kFragmentAt]),
                      .ecn = static_cast<Ecn>(packet[1] & 3)};
}

}  // namespace pacecar
