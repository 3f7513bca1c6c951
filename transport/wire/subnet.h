// IPv4 subnets. Pure. Thread rule: any.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/wire/address.h"
#include "transport/wire/big_endian.h"

namespace pacecar {

// An interface's address with the length of its subnet's prefix.
struct Subnet {
  uint32_t ip = 0;     // 192.0.2.1 is 0xC0000201
  uint8_t prefix = 0;  // 0: not known, or not IPv4

  bool operator==(const Subnet&) const = default;
};

// 0: not IPv4.
inline uint32_t ipv4_of(const Address& address) {
  return is_ipv4(address) ? wire::load_be32(address.ip.data() + kIpv4Prefix.size()) : 0;
}

inline Address address_of(const Subnet& subnet) {
  Address address;
  std::ranges::copy(kIpv4Prefix, address.ip.begin());
  wire::store_be32(subnet.ip, address.ip.data() + kIpv4Prefix.size());
  return address;
}

// Whether two interfaces can be neighbours: they have different addresses of one subnet.
inline bool are_neighbors(const Subnet& one, const Subnet& other) {
  if (one.prefix == 0 || one.prefix != other.prefix || one.ip == other.ip) return false;
  return (one.ip ^ other.ip) >> (32 - one.prefix) == 0;
}

}  // namespace pacecar
