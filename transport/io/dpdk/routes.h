// Routes: the next hop on the link for an address. Pure except kernel_routes(). Thread rule: any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/wire/packet.h"

namespace pacecar {

struct Route {
  Address prefix;     // port and scope are ignored
  uint8_t bits = 0;   // of 128; for an IPv4 prefix 96 more than in the usual notation
  Address gateway{};  // all 0: the destinations are on the link
  uint32_t metric =
      0;  // of two routes with the same prefix, the one with the smaller metric is used
};

class Routes {
 public:
  Routes() = default;
  explicit Routes(std::vector<Route> routes);

  // The gateway to an address, or the address itself; addresses without a route are on the link.
  const Address& next_hop(const Address& address) const;
  bool is_gateway(const Address& address) const;

 private:
  std::vector<Route> routes_;  // the best first
};

// The routes of one interface, from the text of /proc/net/route and /proc/net/ipv6_route. Lines
// that cannot be read are left out.
std::vector<Route> parse_ipv4_routes(std::string_view text, std::string_view interface);
std::vector<Route> parse_ipv6_routes(std::string_view text, std::string_view interface);

// The kernel's routes of the family of `local`.
std::vector<Route> kernel_routes(const std::string& interface, const Address& local);

}  // namespace pacecar
