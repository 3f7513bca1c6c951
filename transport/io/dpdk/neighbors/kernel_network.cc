#include "transport/io/dpdk/neighbors/kernel_network.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
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

// The last attribute of both requests: the address that they ask about.
struct Destination {
  rtattr attribute{.rta_len = 0, .rta_type = RTA_DST};
  std::array<uint8_t, 16> address{};
};
static_assert(static_cast<int>(RTA_DST) == static_cast<int>(NDA_DST));

struct NeighborRequest {
  nlmsghdr header{};
  ndmsg body{};
  Destination to{};
};

struct RouteRequest {
  nlmsghdr header{};
  rtmsg body{};
  rtattr interface_attribute{.rta_len = RTA_LENGTH(sizeof(int)), .rta_type = RTA_OIF};
  int interface = 0;
  Destination to{};
};

size_t prefix_bytes(const Address& address) { return is_ipv4(address) ? kIpv4Prefix.size() : 0; }

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

KernelNetwork::KernelNetwork(const std::string& interface)
    : interface_(static_cast<int>(if_nametoindex(interface.c_str()))),
      netlink_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {}

// The kernel's answer, with a body as the request's; empty if it has refused. Valid until the next
// request.
template <typename Request>
std::span<const uint8_t> KernelNetwork::ask(Request request, const Address& address) {
  const auto bytes = std::span(address.ip).subspan(prefix_bytes(address));
  std::ranges::copy(bytes, request.to.address.begin());
  request.to.attribute.rta_len = static_cast<uint16_t>(RTA_LENGTH(bytes.size()));
  request.header.nlmsg_len = static_cast<uint32_t>(sizeof request - prefix_bytes(address));
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.header.nlmsg_seq = ++sequence_;
  if (::send(netlink_.get(), &request, request.header.nlmsg_len, MSG_DONTWAIT) < 0) return {};
  ssize_t size = 0;
  while ((size = recv(netlink_.get(), answer_.data(), answer_.size(), MSG_DONTWAIT)) > 0) {
    nlmsghdr header;
    std::memcpy(&header, answer_.data(), sizeof header);
    if (static_cast<size_t>(size) < header.nlmsg_len || header.nlmsg_seq != sequence_) continue;
    const bool good =
        header.nlmsg_type != NLMSG_ERROR && header.nlmsg_len >= NLMSG_SPACE(sizeof request.body);
    return good ? std::span(answer_).first(header.nlmsg_len) : std::span<uint8_t>();
  }
  return {};
}

Address KernelNetwork::next_hop(const Address& address) {
  const size_t prefix = prefix_bytes(address);
  RouteRequest request{.interface = interface_};
  request.header.nlmsg_type = RTM_GETROUTE;
  request.body.rtm_family = prefix > 0 ? AF_INET : AF_INET6;
  request.body.rtm_dst_len = static_cast<uint8_t>(8 * (address.ip.size() - prefix));
  const auto answer = ask(request, address);
  if (answer.empty()) return address;
  const auto gateway = attribute_of(answer, sizeof(rtmsg), RTA_GATEWAY);
  if (gateway.size() != address.ip.size() - prefix) return address;
  Address hop{.ip = address.ip};
  std::ranges::copy(gateway, hop.ip.begin() + static_cast<ptrdiff_t>(prefix));
  return hop;
}

std::optional<MacAddress> KernelNetwork::find_mac(const Address& address) {
  NeighborRequest request;
  request.header.nlmsg_type = RTM_GETNEIGH;
  request.body.ndm_family = is_ipv4(address) ? AF_INET : AF_INET6;
  request.body.ndm_ifindex = interface_;
  MacAddress mac;
  ndmsg neighbor{};
  if (const auto answer = ask(request, address); !answer.empty()) {
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
  const UdpSocket udp(socket(raw.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sendto(udp.get(), nullptr, 0, 0, &raw.any, length);
  return std::nullopt;
}

}  // namespace pacecar
