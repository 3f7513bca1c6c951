#include "transport/engine/open/own_link.h"

#include <fmt/format.h>
#include <ifaddrs.h>
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
#include "transport/io/kernel_network.h"
#include "transport/io/sockaddr.h"
#include "transport/io/udp/interfaces.h"
#include "transport/io/udp/parse_address.h"

namespace pacecar {
namespace {

bool sends_by_socket(const std::string& nic) {
  return nic.starts_with("soft:udp:") || nic.starts_with("soft:raw:");
}

bool has_address(Address address) {
  address.port = 0;
  SocketAddress raw;
  const socklen_t size = to_sockaddr(address, raw);
  const FileDescriptor any(socket(raw.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return !any || bind(any.get(), &raw.any, size) == 0 || errno != EADDRNOTAVAIL;
}

// The `errno` by which the kernel refuses an empty datagram, which the peer drops; 0: it is sent.
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

struct OwnInterface {
  std::string name;
  uint8_t prefix = 0;  // the length of its subnet's prefix, in bits
  std::string subnet;  // "192.0.2.0/24"; empty: it is alone in it
  bool near = true;    // the peer is in that subnet
};

// The one with this address.
OwnInterface interface_of(const Address& address, const Address& peer = {}) {
  OwnInterface found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const auto here = from_sockaddr(entry->ifa_addr);
    const auto mask = from_sockaddr(entry->ifa_netmask);
    if (!here || !mask || !same_ip(*here, address)) continue;
    Address network = address;
    for (size_t i = is_ipv4(address) ? kIpv4Prefix.size() : 0; i < mask->ip.size(); ++i) {
      network.ip[i] &= mask->ip[i];
      found.near &= network.ip[i] == (peer.ip[i] & mask->ip[i]);
      found.prefix = static_cast<uint8_t>(found.prefix + std::popcount(mask->ip[i]));
    }
    found.name = name_of_label(entry->ifa_name);
    if (mask->ip.back() != 0xFF) {
      found.subnet = fmt::format("{}/{}", ip_to_string(network), found.prefix);
    }
    break;
  }
  return found;
}

// The interface by which the kernel sends; "lo" to this host, empty: no route.
std::string outgoing(const Address& from, const Address& to) {
  std::array<char, IF_NAMESIZE> name{};
  const char* const found = if_indextoname(KernelNetwork().outgoing(from, to), name.data());
  return found == nullptr ? std::string() : found;
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
  if (!sends_by_socket(nic)) return {};
  const std::string interface = nic.substr(nic.find(':', 5) + 1);
  if (link_is_up(interface) == false) {
    return fmt::format(
        "this host's {0} has no link: bring it up ('ip link set {0} up') and check "
        "its cable",
        interface);
  }
  if (!has_address(address)) {
    return fmt::format(
        "this host's {} has lost its address {}: give it back, or start the job anew with another",
        interface, ip_to_string(address));
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
  if (is_loopback(address) || !is_ipv4(address)) return {};
  return {.ip = ipv4_of(address), .prefix = interface_of(address).prefix};
}

bool leaves_by_own(const Address& own, const Address& peer) {
  const std::string interface = interface_of(own).name;
  return !interface.empty() && outgoing(own, peer) == interface;
}

std::string route_trouble(const std::string& nic, const Address& own, const std::string& peer) {
  const auto to = parse_address(peer);
  if (!to || !sends_by_socket(nic)) return {};
  const OwnInterface interface = interface_of(own, *to);
  const std::string by = outgoing(own, *to);
  if (interface.subnet.empty() || by.empty() || by == "lo" || by == interface.name) return {};
  return fmt::format(
      "what {0} sends to {1} leaves by {2}, as Linux routes by destination: give {3} {7}a rule "
      "('{4} rule add from {5} table {8}; {4} route add {6} dev {3} table {8}')",
      nic, ip_to_string(*to), by, interface.name, is_ipv4(own) ? "ip" : "ip -6", ip_to_string(own),
      interface.near ? interface.subnet : "default via ROUTER",
      interface.near ? "a subnet of its own, or " : "",
      1000 + if_nametoindex(interface.name.c_str()));  // each interface needs its own table
}

}  // namespace pacecar
