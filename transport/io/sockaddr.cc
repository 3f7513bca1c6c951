#include "transport/io/sockaddr.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "transport/base/file_descriptor.h"
#include "transport/wire/address.h"

namespace pacecar {

socklen_t to_sockaddr(const Address& address, SocketAddress& out) {
  if (is_ipv4(address)) {
    out.v4 = {};
    out.v4.sin_family = AF_INET;
    out.v4.sin_port = htons(address.port);
    std::memcpy(&out.v4.sin_addr, &address.ip[kIpv4Prefix.size()], sizeof(out.v4.sin_addr));
    return sizeof(out.v4);
  }
  out.v6 = {};
  out.v6.sin6_family = AF_INET6;
  out.v6.sin6_port = htons(address.port);
  out.v6.sin6_scope_id = address.scope_id;
  std::memcpy(&out.v6.sin6_addr, address.ip.data(), address.ip.size());
  return sizeof(out.v6);
}

Address from_sockaddr(const SocketAddress& in) {
  Address address;
  if (in.any.sa_family == AF_INET) {
    std::copy(kIpv4Prefix.begin(), kIpv4Prefix.end(), address.ip.begin());
    std::memcpy(&address.ip[kIpv4Prefix.size()], &in.v4.sin_addr, sizeof(in.v4.sin_addr));
    address.port = ntohs(in.v4.sin_port);
  } else {
    std::memcpy(address.ip.data(), &in.v6.sin6_addr, address.ip.size());
    address.port = ntohs(in.v6.sin6_port);
    address.scope_id = in.v6.sin6_scope_id;
  }
  return address;
}

std::optional<Address> from_sockaddr(const sockaddr* in) {
  if (in == nullptr || (in->sa_family != AF_INET && in->sa_family != AF_INET6)) return std::nullopt;
  SocketAddress raw{};
  std::memcpy(&raw, in, in->sa_family == AF_INET ? sizeof raw.v4 : sizeof raw.v6);
  return from_sockaddr(raw);
}

// Connecting a datagram socket chooses its source address, and sends nothing.
std::optional<Address> source_towards(const Address& to, const std::optional<Address>& bound) {
  SocketAddress peer;
  SocketAddress own;
  const socklen_t peer_bytes =
      to_sockaddr({.ip = to.ip, .scope_id = to.scope_id, .port = 1}, peer);  // port 0 is refused
  const FileDescriptor probe(socket(peer.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  bool routed = static_cast<bool>(probe);
  if (routed && bound) {
    const socklen_t bytes = to_sockaddr({.ip = bound->ip, .scope_id = bound->scope_id}, own);
    routed = bind(probe.get(), &own.any, bytes) == 0;
  }
  socklen_t own_bytes = sizeof own;
  routed = routed && connect(probe.get(), &peer.any, peer_bytes) == 0 &&
           getsockname(probe.get(), &own.any, &own_bytes) == 0;
  return routed ? std::optional(from_sockaddr(own)) : std::nullopt;
}

}  // namespace pacecar
