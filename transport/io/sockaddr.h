// Conversion between Address and the sockets API's addresses. IPv4-mapped addresses become
// sockaddr_in. Pure, but for source_towards(). Thread rule: any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>

#include "transport/wire/packet.h"

namespace pacecar {

// Room for both families, without the 128 bytes of sockaddr_storage.
union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

socklen_t to_sockaddr(const Address& address, SocketAddress& out);
Address from_sockaddr(const SocketAddress& in);  // `in` must be AF_INET or AF_INET6.
// nullopt: an address of another family, or null.
std::optional<Address> from_sockaddr(const sockaddr* in);

// The address of this host from which it sends to `to`, with any port; `bound`: an address to send
// from. nullopt, with errno: no route leads to `to`.
std::optional<Address> source_towards(const Address& to,
                                      const std::optional<Address>& bound = std::nullopt);

}  // namespace pacecar
