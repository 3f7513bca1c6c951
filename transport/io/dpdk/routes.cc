#include "transport/io/dpdk/routes.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>
#include <sstream>
#include <tuple>

#include "transport/base/to_number.h"
#include "transport/io/frame.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

constexpr uint8_t kAllBits = 128;
constexpr uint8_t kIpv4Bits = 96;
// linux/route.h and linux/ipv6_route.h
constexpr uint32_t kUp = 0x1;
constexpr uint32_t kReject = 0x200;
constexpr uint32_t kLocal = 0x8000'0000;

bool covers(const Route& route, const Address& address) {
  const size_t bytes = route.bits / 8;
  if (!std::equal(address.ip.begin(), address.ip.begin() + bytes, route.prefix.ip.begin())) {
    return false;
  }
  const int rest = route.bits % 8;
  return rest == 0 || ((address.ip[bytes] ^ route.prefix.ip[bytes]) >> (8 - rest)) == 0;
}

std::vector<std::string> fields_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::optional<uint32_t> hexadecimal(std::string_view text) { return to_number<uint32_t>(text, 16); }

// An address as a 32-bit number, whose bytes are in the address's order in memory.
std::optional<Address> ipv4_from(const std::string& text) {
  const auto word = hexadecimal(text);
  if (!word) return std::nullopt;
  return frame::ipv4_address(reinterpret_cast<const uint8_t*>(&*word));
}

std::optional<Address> ipv6_from(std::string_view text) {
  Address address;
  if (text.size() != 2 * address.ip.size()) return std::nullopt;
  for (size_t i = 0; i < address.ip.size(); ++i) {
    const auto byte = hexadecimal(text.substr(2 * i, 2));
    if (!byte) return std::nullopt;
    address.ip[i] = static_cast<uint8_t>(*byte);
  }
  return address;
}

template <typename Read>
std::vector<Route> parse_lines(std::string_view text, Read&& read) {
  std::vector<Route> routes;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (const std::optional<Route> route = read(fields_of(line))) routes.push_back(*route);
  }
  return routes;
}

}  // namespace

Routes::Routes(std::vector<Route> routes) : routes_(std::move(routes)) {
  const size_t count = routes_.size();
  // A gateway is on the link, whatever other routes cover it.
  for (size_t i = 0; i < count; ++i) {
    if (routes_[i].gateway != Address()) {
      routes_.push_back({.prefix = routes_[i].gateway, .bits = kAllBits});
    }
  }
  std::ranges::stable_sort(routes_, {}, [](const Route& route) {
    return std::tuple(kAllBits - route.bits, route.metric);
  });
}

const Address& Routes::next_hop(const Address& address) const {
  const auto best =
      std::ranges::find_if(routes_, [&](const Route& r) { return covers(r, address); });
  return best == routes_.end() || best->gateway == Address() ? address : best->gateway;
}

bool Routes::is_gateway(const Address& address) const {
  return std::ranges::any_of(routes_, [&](const Route& r) { return r.gateway.ip == address.ip; });
}

std::vector<Route> parse_ipv4_routes(std::string_view text, std::string_view interface) {
  return parse_lines(text, [&](const std::vector<std::string>& fields) -> std::optional<Route> {
    if (fields.size() < 8 || fields[0] != interface) return std::nullopt;
    const auto prefix = ipv4_from(fields[1]);
    const auto gateway = ipv4_from(fields[2]);
    const auto flags = hexadecimal(fields[3]);
    const auto metric = hexadecimal(fields[6]);
    const auto mask = hexadecimal(fields[7]);
    if (!prefix || !gateway || !flags || !metric || !mask) return std::nullopt;
    if ((*flags & (kUp | kReject)) != kUp) return std::nullopt;
    const bool direct = hexadecimal(fields[2]) == 0U;
    return Route{.prefix = *prefix,
                 .bits = static_cast<uint8_t>(kIpv4Bits + std::popcount(*mask)),
                 .gateway = direct ? Address() : *gateway,
                 .metric = *metric};
  });
}

std::vector<Route> parse_ipv6_routes(std::string_view text, std::string_view interface) {
  return parse_lines(text, [&](const std::vector<std::string>& fields) -> std::optional<Route> {
    if (fields.size() < 10 || fields[9] != interface) return std::nullopt;
    const auto prefix = ipv6_from(fields[0]);
    const auto bits = hexadecimal(fields[1]);
    const auto gateway = ipv6_from(fields[4]);
    const auto metric = hexadecimal(fields[5]);
    const auto flags = hexadecimal(fields[8]);
    if (!prefix || !bits || *bits > kAllBits || !gateway || !flags || !metric) return std::nullopt;
    if ((*flags & (kUp | kReject | kLocal)) != kUp) return std::nullopt;
    return Route{.prefix = *prefix,
                 .bits = static_cast<uint8_t>(*bits),
                 .gateway = *gateway,
                 .metric = *metric};
  });
}

std::vector<Route> kernel_routes(const std::string& interface, const Address& local) {
  const bool ipv4 = is_ipv4(local);
  std::ifstream file(ipv4 ? "/proc/thread-self/net/route" : "/proc/thread-self/net/ipv6_route");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return ipv4 ? parse_ipv4_routes(text, interface) : parse_ipv6_routes(text, interface);
}

}  // namespace pacecar
