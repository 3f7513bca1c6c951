// Names of endpoints: the socket addresses of their TCP listeners, IPv4 or IPv6.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "net_plugin/libfabric/core/names.h"

namespace pacecar::fabric {

inline size_t name_bytes(sa_family_t family) {
  return family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

// nullopt: it is of another family.
inline std::optional<Name> name_of(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in name{};
    std::memcpy(&name, address, sizeof name);
    std::memset(name.sin_zero, 0, sizeof name.sin_zero);
    return Name(reinterpret_cast<const char*>(&name), sizeof name);
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 name{};
    std::memcpy(&name, address, sizeof name);
    name.sin6_flowinfo = 0;
    return Name(reinterpret_cast<const char*>(&name), sizeof name);
  }
  return std::nullopt;
}

inline sockaddr_storage socket_address(const Name& name) {
  sockaddr_storage address{};
  std::memcpy(&address, name.data(), std::min(name.size(), sizeof address));
  return address;
}

inline uint16_t port_of(const Name& name) {  // in either family at the same place
  const sockaddr_storage address = socket_address(name);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

inline Name with_port(const Name& name, uint16_t port) {
  sockaddr_storage address = socket_address(name);
  reinterpret_cast<sockaddr_in*>(&address)->sin_port = htons(port);
  return *name_of(reinterpret_cast<const sockaddr*>(&address));
}

inline bool same_host(const Name& one, const Name& other) {
  return with_port(one, 0) == with_port(other, 0);
}

inline bool is_any(const Name& name) {
  const sockaddr_storage address = socket_address(name);
  if (address.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&address)->sin_addr.s_addr == INADDR_ANY;
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr);
}

// "192.0.2.1:7000", "[2001:db8::1]:7000"
std::string name_text(const Name& name);

}  // namespace pacecar::fabric
