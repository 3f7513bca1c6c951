#include "transport/io/dpdk/kernel_neighbors.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

constexpr uint16_t kDiscardPort = 9;  // RFC 863
constexpr int kUsable =
    NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP;

struct Request {
  nlmsghdr header;
  ndmsg neighbor;
  rtattr attribute;
  std::array<uint8_t, 16> address;
};

// nullopt unless the answer has a MAC address that the kernel would use.
std::optional<MacAddress> read_answer(const nlmsghdr& header) {
  ndmsg neighbor;
  if (header.nlmsg_type != RTM_NEWNEIGH || header.nlmsg_len < NLMSG_LENGTH(sizeof neighbor)) {
    return std::nullopt;
  }
  const uint8_t* const body = reinterpret_cast<const uint8_t*>(&header) + NLMSG_HDRLEN;
  std::memcpy(&neighbor, body, sizeof neighbor);
  if ((neighbor.ndm_state & kUsable) == 0) return std::nullopt;
  int left = static_cast<int>(NLMSG_PAYLOAD(&header, sizeof neighbor));
  const auto* attribute = reinterpret_cast<const rtattr*>(body + NLMSG_ALIGN(sizeof neighbor));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    MacAddress mac;
    if (attribute->rta_type != NDA_LLADDR || RTA_PAYLOAD(attribute) != mac.size()) continue;
    std::memcpy(mac.data(), RTA_DATA(attribute), mac.size());
    return mac;
  }
  return std::nullopt;
}

}  // namespace

KernelNeighbors::KernelNeighbors(const std::string& interface)
    : interface_(static_cast<int>(if_nametoindex(interface.c_str()))),
      netlink_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {}

std::optional<MacAddress> KernelNeighbors::look_up(const Address& address) {
  const bool ipv4 = is_ipv4(address);
  const size_t skipped = ipv4 ? kIpv4Prefix.size() : 0;
  Request request{};
  request.header.nlmsg_len = static_cast<uint32_t>(sizeof request - skipped);
  request.header.nlmsg_type = RTM_GETNEIGH;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.header.nlmsg_seq = ++sequence_;
  request.neighbor.ndm_family = ipv4 ? AF_INET : AF_INET6;
  request.neighbor.ndm_ifindex = interface_;
  request.attribute.rta_type = NDA_DST;
  request.attribute.rta_len = static_cast<uint16_t>(RTA_LENGTH(address.ip.size() - skipped));
  std::copy(address.ip.begin() + skipped, address.ip.end(), request.address.begin());
  if (::send(netlink_.get(), &request, request.header.nlmsg_len, MSG_DONTWAIT) < 0) {
    return std::nullopt;
  }
  alignas(nlmsghdr) std::array<uint8_t, 1024> answer;
  ssize_t size = 0;
  while ((size = recv(netlink_.get(), answer.data(), answer.size(), MSG_DONTWAIT)) > 0) {
    const auto* const header = reinterpret_cast<const nlmsghdr*>(answer.data());
    if (!NLMSG_OK(header, static_cast<size_t>(size)) || header->nlmsg_seq != sequence_) continue;
    return read_answer(*header);
  }
  return std::nullopt;
}

std::optional<MacAddress> KernelNeighbors::find(const Address& address) {
  const auto mac = look_up(address);
  if (mac) return mac;
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
