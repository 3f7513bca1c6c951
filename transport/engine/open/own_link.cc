#include "transport/engine/open/own_link.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "transport/base/file_descriptor.h"
#include "transport/io/sockaddr.h"
#include "transport/io/udp/parse_address.h"

namespace pacecar {
namespace {

bool has_address(Address address) {
  address.port = 0;
  SocketAddress raw;
  const socklen_t size = to_sockaddr(address, raw);
  const FileDescriptor any(socket(raw.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return !any || bind(any.get(), &raw.any, size) == 0 || errno != EADDRNOTAVAIL;
}

// The `errno` with which the kernel refuses an empty datagram, which the peer drops; 0: it sends
// it.
int refusal(Address from, const Address& to) {
  from.port = 0;
  SocketAddress raw;
  socklen_t size = to_sockaddr(from, raw);
  const FileDescriptor any(socket(raw.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!any || bind(any.get(), &raw.any, size) != 0) return 0;
  size = to_sockaddr(to, raw);
  if (sendto(any.get(), nullptr, 0, MSG_DONTWAIT, &raw.any, size) == 0) return 0;
  return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ? 0 : errno;
}

uint32_t ipv4_of(const sockaddr* raw) {
  if (raw == nullptr || raw->sa_family != AF_INET) return 0;
  sockaddr_in v4;
  std::memcpy(&v4, raw, sizeof v4);
  return ntohl(v4.sin_addr.s_addr);
}

// Calls found(entry) for the interface's entry with this address.
template <typename Found>
void with_interface(uint32_t ip, Found found) {
  ifaddrs* list = nullptr;
  if (ip == 0 || getifaddrs(&list) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (ipv4_of(entry->ifa_addr) == ip) return found(*entry);
  }
}

struct RouteRequest {
  nlmsghdr header{
      .nlmsg_len = sizeof(RouteRequest), .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST};
  rtmsg body{.rtm_family = AF_INET, .rtm_dst_len = 32, .rtm_src_len = 32};
  rtattr to{.rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = RTA_DST};
  uint32_t to_ip = 0;
  rtattr from{.rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = RTA_SRC};
  uint32_t from_ip = 0;
};

// The index of the interface by which the kernel sends; 0: no route.
uint32_t outgoing(uint32_t from, uint32_t to) {
  const FileDescriptor netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  RouteRequest request;
  request.to_ip = htonl(to);
  request.from_ip = htonl(from);
  if (!netlink || send(netlink.get(), &request, sizeof request, 0) < 0) return 0;
  alignas(nlmsghdr) std::array<char, 4096> answer;
  const ssize_t size = recv(netlink.get(), answer.data(), answer.size(), 0);
  nlmsghdr header;
  if (size < static_cast<ssize_t>(NLMSG_SPACE(sizeof(rtmsg)))) return 0;
  std::memcpy(&header, answer.data(), sizeof header);
  if (header.nlmsg_type != RTM_NEWROUTE) return 0;
  const auto* at = reinterpret_cast<const rtattr*>(answer.data() + NLMSG_SPACE(sizeof(rtmsg)));
  auto left = static_cast<int>(size - static_cast<ssize_t>(NLMSG_SPACE(sizeof(rtmsg))));
  for (; RTA_OK(at, left); at = RTA_NEXT(at, left)) {
    uint32_t interface = 0;
    if (at->rta_type != RTA_OIF || RTA_PAYLOAD(at) != sizeof interface) continue;
    std::memcpy(&interface, RTA_DATA(at), sizeof interface);
    return interface;
  }
  return 0;
}

}  // namespace

std::optional<bool> link_is_up(const std::string& interface) {
  ifreq request{};
  if (interface.size() >= sizeof request.ifr_name) return std::nullopt;
  std::copy(interface.begin(), interface.end(), request.ifr_name);
  const FileDescriptor any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!any || ioctl(any.get(), SIOCGIFFLAGS, &request) != 0) return std::nullopt;
  return (request.ifr_flags & IFF_RUNNING) != 0;
}

std::string own_trouble(const std::string& nic, const Address& address, const std::string& peer) {
  if (!nic.starts_with("soft:udp:") && !nic.starts_with("soft:raw:")) return {};
  const std::string interface = nic.substr(nic.find(':', 5) + 1);
  if (link_is_up(interface) == false) {
    return fmt::format(
        "this host's {0} has no link: bring it up ('ip link set {0} up') and check "
        "its cable",
        interface);
  }
  if (!has_address(address)) {
    return fmt::format(
        "this host's {} has lost its address {}: give it back, and start the job anew", interface,
        ip_to_string(address));
  }
  const auto to = parse_address(peer);
  const int refused = to ? refusal(address, *to) : 0;
  if (refused == 0) return {};
  return fmt::format(
      "this host's kernel refuses packets from {} to {} ({}): its firewall or its routes forbid "
      "them ('iptables -S OUTPUT', 'ip route get {}'), or its table of connections is full "
      "(net.netfilter.nf_conntrack_max)",
      ip_to_string(address), peer, std::strerror(refused), ip_to_string(*to));
}

Subnet subnet_of(const Address& address) {
  Subnet subnet;
  if (is_loopback(address)) return subnet;
  with_interface(ipv4_of(address), [&](const ifaddrs& entry) {
    subnet = {.ip = ipv4_of(address),
              .prefix = static_cast<uint8_t>(std::popcount(ipv4_of(entry.ifa_netmask)))};
  });
  return subnet;
}

Route route_of(const Subnet& own, const Address& peer) {
  Route route;
  with_interface(own.ip, [&](const ifaddrs& entry) { route.own = entry.ifa_name; });
  std::array<char, IF_NAMESIZE> name{};
  if (if_indextoname(outgoing(own.ip, ipv4_of(peer)), name.data()) != nullptr)
    route.by = name.data();
  return route;
}

}  // namespace pacecar
