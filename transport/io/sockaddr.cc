#include "transport/io/sockaddr.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

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

}  // namespace pacecar
