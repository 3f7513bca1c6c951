#include "transport/io/dpdk/neighbors/neighbor_message.h"

#include <algorithm>

#include "transport/wire/address.h"

namespace pacecar {
namespace {

using frame::kIpv6Bytes;
using frame::put16;
using wire::load_be16;
using Kind = NeighborMessage::Kind;

constexpr size_t kArpBytes = 28;
constexpr uint16_t kArpRequest = 1;
constexpr uint16_t kArpReply = 2;
constexpr std::array<uint8_t, 6> kArpForEthernet = {0, 1, 8, 0, 6, 4};

constexpr uint8_t kIcmpv6 = 58;
constexpr uint8_t kNdHopLimit = 255;  // anything less has passed a router
constexpr uint8_t kSolicitation = 135;
constexpr uint8_t kAdvertisement = 136;
constexpr uint8_t kSolicited = 0x40;
constexpr uint8_t kOverride = 0x20;
constexpr size_t kNdBytes = 24;     // without options
constexpr size_t kOptionBytes = 8;  // a MAC address
constexpr uint8_t kSourceMac = 1;
constexpr uint8_t kTargetMac = 2;
constexpr std::array<uint8_t, 16> kAllNodes = {0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

void put_mac(const MacAddress& mac, uint8_t* to) { std::ranges::copy(mac, to); }

MacAddress get_mac(const uint8_t* from) {
  MacAddress mac;
  std::copy_n(from, mac.size(), mac.begin());
  return mac;
}

void put_ipv4(const Address& address, uint8_t* to) {
  std::ranges::copy(std::span(address.ip).last(4), to);
}

Address get_ipv6(const uint8_t* from) {
  Address address;
  std::copy_n(from, 16, address.ip.begin());
  return address;
}

bool is_one_host(const MacAddress& mac) {
  return (mac[0] & 1) == 0 && std::ranges::any_of(mac, [](uint8_t byte) { return byte != 0; });
}

size_t write_arp(const NeighborMessage& message, const frame::Vlan& vlan, uint8_t* out) {
  const bool to_all = message.kind != Kind::kAnswer;
  const size_t at = frame::write_ethernet(to_all ? kBroadcastMac : message.target_mac,
                                          message.sender_mac, vlan, frame::kArp, out);
  uint8_t* arp = out + at;
  std::fill_n(arp, kArpBytes, 0);
  std::ranges::copy(kArpForEthernet, arp);
  put16(to_all ? kArpRequest : kArpReply, arp + 6);
  put_mac(message.sender_mac, arp + 8);
  put_ipv4(message.sender, arp + 14);
  if (!to_all) put_mac(message.target_mac, arp + 18);
  // An announcement asks for the sender itself (RFC 5227, section 3).
  put_ipv4(message.kind == Kind::kAnnouncement ? message.sender : message.target, arp + 24);
  return at + kArpBytes;
}

std::optional<NeighborMessage> read_arp(std::span<const uint8_t> arp) {
  if (arp.size() < kArpBytes || !std::ranges::equal(arp.first(6), kArpForEthernet)) {
    return std::nullopt;
  }
  const uint16_t operation = load_be16(&arp[6]);
  NeighborMessage message{.kind = operation == kArpRequest ? Kind::kQuestion : Kind::kAnswer,
                          .sender = frame::ipv4_address(&arp[14]),
                          .sender_mac = get_mac(&arp[8]),
                          .target = frame::ipv4_address(&arp[24]),
                          .target_mac = get_mac(&arp[18])};
  if (operation != kArpRequest && operation != kArpReply) return std::nullopt;
  if (message.sender.ip == message.target.ip) message.kind = Kind::kAnnouncement;
  return message;
}

uint32_t icmpv6_sum(const uint8_t* ip, std::span<const uint8_t> icmp) {
  const uint32_t addresses = frame::sum16({ip + 8, 32});
  return frame::sum16(icmp, addresses + static_cast<uint32_t>(icmp.size()) + kIcmpv6);
}

// A question goes to the solicited-node group (RFC 4291, section 2.7.1), usually of one host.
std::array<uint8_t, 16> solicited_node(const Address& target) {
  std::array<uint8_t, 16> group = {0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xFF};
  std::copy_n(&target.ip[13], 3, &group[13]);
  return group;
}

MacAddress multicast_mac(const std::array<uint8_t, 16>& group) {
  return {0x33, 0x33, group[12], group[13], group[14], group[15]};
}

size_t write_nd(const NeighborMessage& message, const frame::Vlan& vlan, uint8_t* out) {
  const bool question = message.kind == Kind::kQuestion;
  const bool answer = message.kind == Kind::kAnswer;
  const std::array<uint8_t, 16> to = question ? solicited_node(message.target)
                                     : answer ? message.target.ip
                                              : kAllNodes;
  const size_t at = frame::write_ethernet(answer ? message.target_mac : multicast_mac(to),
                                          message.sender_mac, vlan, frame::kIpv6, out);
  uint8_t* ip = out + at;
  std::fill_n(ip, kIpv6Bytes + kNdBytes + kOptionBytes, 0);
  ip[0] = 0x60;
  put16(kNdBytes + kOptionBytes, ip + 4);
  ip[6] = kIcmpv6;
  ip[7] = kNdHopLimit;
  std::ranges::copy(message.sender.ip, ip + 8);
  std::ranges::copy(to, ip + 24);
  uint8_t* nd = ip + kIpv6Bytes;
  nd[0] = question ? kSolicitation : kAdvertisement;
  if (!question) nd[4] = static_cast<uint8_t>(kOverride | (answer ? kSolicited : 0));
  std::ranges::copy(question ? message.target.ip : message.sender.ip, nd + 8);
  nd[kNdBytes] = question ? kSourceMac : kTargetMac;
  nd[kNdBytes + 1] = 1;  // option length, in 8 bytes
  put_mac(message.sender_mac, nd + kNdBytes + 2);
  const std::span<const uint8_t> icmp(nd, kNdBytes + kOptionBytes);
  put16(static_cast<uint16_t>(~frame::fold(icmpv6_sum(ip, icmp))), nd + 2);
  return at + kIpv6Bytes + kNdBytes + kOptionBytes;
}

// The MAC address among the options; other options are skipped.
std::optional<MacAddress> find_mac(std::span<const uint8_t> options, uint8_t type) {
  while (options.size() >= kOptionBytes) {
    const size_t length = size_t{options[1]} * 8;
    if (length == 0 || length > options.size()) return std::nullopt;
    if (options[0] == type && length == kOptionBytes) return get_mac(&options[2]);
    options = options.subspan(length);
  }
  return std::nullopt;
}

std::optional<NeighborMessage> read_nd(std::span<const uint8_t> ip) {
  if (ip.size() < kIpv6Bytes + kNdBytes || ip[0] >> 4 != 6 || ip[6] != kIcmpv6 ||
      ip[7] != kNdHopLimit) {
    return std::nullopt;
  }
  const size_t length = load_be16(&ip[4]);
  if (length < kNdBytes || length > ip.size() - kIpv6Bytes) return std::nullopt;
  const std::span<const uint8_t> nd = ip.subspan(kIpv6Bytes, length);
  const bool question = nd[0] == kSolicitation;
  if ((!question && nd[0] != kAdvertisement) || nd[1] != 0) return std::nullopt;
  if (frame::fold(icmpv6_sum(ip.data(), nd)) != 0xFFFF) return std::nullopt;
  const auto mac = find_mac(nd.subspan(kNdBytes), question ? kSourceMac : kTargetMac);
  if (!mac) return std::nullopt;
  const Address source = get_ipv6(&ip[8]);
  const Address named = get_ipv6(&nd[8]);
  if (question) return NeighborMessage{.sender = source, .sender_mac = *mac, .target = named};
  const bool to_all = ip[24] == 0xFF;
  return NeighborMessage{.kind = to_all ? Kind::kAnnouncement : Kind::kAnswer,
                         .sender = named,
                         .sender_mac = *mac,
                         .target = get_ipv6(&ip[24])};
}

}  // namespace

size_t write_neighbor_message(const NeighborMessage& message, const frame::Vlan& vlan,
                              std::span<uint8_t, kMaxNeighborMessageBytes> out) {
  return is_ipv4(message.sender) ? write_arp(message, vlan, out.data())
                                 : write_nd(message, vlan, out.data());
}

std::optional<NeighborMessage> read_neighbor_message(std::span<const uint8_t> bytes) {
  const auto ethernet = frame::read_ethernet(bytes);
  if (!ethernet) return std::nullopt;
  std::optional<NeighborMessage> message;
  if (ethernet->type == frame::kArp) message = read_arp(ethernet->bytes);
  if (ethernet->type == frame::kIpv6) message = read_nd(ethernet->bytes);
  if (!message || !is_one_host(message->sender_mac)) return std::nullopt;
  return message;
}

Address link_local_address(const MacAddress& mac) {
  return {.ip = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2],
                 0xFF, 0xFE, mac[3], mac[4], mac[5]}};
}

}  // namespace pacecar
