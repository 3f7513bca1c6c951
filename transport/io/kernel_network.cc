#include "transport/io/kernel_network.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

constexpr uint16_t kDiscardPort = 9;  // RFC 863
constexpr int kUsable =
    NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP;

// The 4 or 16 bytes that the kernel compares.
std::span<const uint8_t> bytes_of(const Address& address) {
  return std::span(address.ip).subspan(is_ipv4(address) ? kIpv4Prefix.size() : 0);
}

rtmsg route_to(const Address& address) {
  return {.rtm_family = static_cast<uint8_t>(is_ipv4(address) ? AF_INET : AF_INET6),
          .rtm_dst_len = static_cast<uint8_t>(8 * bytes_of(address).size())};
}

// The value of an attribute after a body of this size; empty if there is none.
std::span<const uint8_t> attribute_of(std::span<const uint8_t> answer, size_t body, int type) {
  const auto attributes = answer.subspan(NLMSG_SPACE(body));
  auto left = static_cast<int>(attributes.size());
  const auto* at = reinterpret_cast<const rtattr*>(attributes.data());
  for (; RTA_OK(at, left); at = RTA_NEXT(at, left)) {
    if (at->rta_type == type) return {static_cast<uint8_t*>(RTA_DATA(at)), RTA_PAYLOAD(at)};
  }
  return {};
}

}  // namespace

KernelNetwork::KernelNetwork(uint32_t interface)
    : interface_(static_cast<int>(interface)),
      netlink_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {}

// The kernel's answer, of the request's type; empty: refused. Valid until the next request.
template <typename Body>
std::span<const uint8_t> KernelNetwork::ask(uint16_t type, const Body& body,
                                            std::initializer_list<Attribute> attributes) {
  alignas(nlmsghdr) std::array<uint8_t, 128> request{};
  size_t size = NLMSG_HDRLEN;
  const auto append = [&](std::span<const uint8_t> bytes) {
    std::ranges::copy(bytes, request.begin() + static_cast<ptrdiff_t>(size));
    size += RTA_ALIGN(bytes.size());
  };
  append({reinterpret_cast<const uint8_t*>(&body), sizeof body});
  for (const auto& [kind, value] : attributes) {
    const rtattr head{.rta_len = static_cast<uint16_t>(RTA_LENGTH(value.size())), .rta_type = kind};
    append({reinterpret_cast<const uint8_t*>(&head), sizeof head});
    append(value);
  }
  nlmsghdr header{.nlmsg_len = static_cast<uint32_t>(size),
                  .nlmsg_type = type,
                  .nlmsg_flags = NLM_F_REQUEST,
                  .nlmsg_seq = ++sequence_};
  std::memcpy(request.data(), &header, sizeof header);
  if (::send(netlink_.get(), request.data(), size, MSG_DONTWAIT) < 0) return {};
  ssize_t received = 0;
  while ((received = recv(netlink_.get(), answer_.data(), answer_.size(), MSG_DONTWAIT)) > 0) {
    std::memcpy(&header, answer_.data(), sizeof header);
    if (static_cast<size_t>(received) < header.nlmsg_len || header.nlmsg_seq != sequence_) continue;
    const bool good =
        header.nlmsg_type != NLMSG_ERROR && header.nlmsg_len >= NLMSG_SPACE(sizeof body);
    return good ? std::span(answer_).first(header.nlmsg_len) : std::span<uint8_t>();
  }
  return {};
}

uint32_t KernelNetwork::outgoing(const Address& from, const Address& to) {
  rtmsg route = route_to(to);
  route.rtm_src_len = route.rtm_dst_len;
  const auto answer =
      ask(RTM_GETROUTE, route, {{RTA_DST, bytes_of(to)}, {RTA_SRC, bytes_of(from)}});
  uint32_t interface = 0;
  if (answer.empty()) return interface;
  const auto found = attribute_of(answer, sizeof route, RTA_OIF);
  if (found.size() == sizeof interface) std::memcpy(&interface, found.data(), sizeof interface);
  return interface;
}

Address KernelNetwork::next_hop(const Address& address) {
  const rtmsg route = route_to(address);
  const auto to = bytes_of(address);
  const std::span by(reinterpret_cast<const uint8_t*>(&interface_), sizeof interface_);
  const auto answer = ask(RTM_GETROUTE, route, {{RTA_OIF, by}, {RTA_DST, to}});
  if (answer.empty()) return address;
  const auto gateway = attribute_of(answer, sizeof route, RTA_GATEWAY);
  if (gateway.size() != to.size()) return address;
  Address hop{.ip = address.ip};
  std::ranges::copy(gateway, hop.ip.end() - static_cast<ptrdiff_t>(to.size()));
  return hop;
}

std::optional<MacAddress> KernelNetwork::find_mac(const Address& address) {
  ndmsg neighbor{.ndm_family = route_to(address).rtm_family, .ndm_ifindex = interface_};
  MacAddress mac;
  const auto answer = ask(RTM_GETNEIGH, neighbor, {{NDA_DST, bytes_of(address)}});
  if (!answer.empty()) {
    std::memcpy(&neighbor, answer.data() + NLMSG_HDRLEN, sizeof neighbor);
    const auto known = attribute_of(answer, sizeof neighbor, NDA_LLADDR);
    if ((neighbor.ndm_state & kUsable) != 0 && known.size() == mac.size()) {
      std::ranges::copy(known, mac.begin());
      return mac;
    }
  }
  // The kernel asks for the address when it has a datagram to send.
  Address to{.ip = address.ip, .port = kDiscardPort};
  if (is_link_local(address)) to.scope_id = static_cast<uint32_t>(interface_);
  SocketAddress raw;
  const socklen_t length = to_sockaddr(to, raw);
  const FileDescriptor udp(socket(raw.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sendto(udp.get(), nullptr, 0, 0, &raw.any, length);
  return std::nullopt;
}

}  // namespace pacecar
