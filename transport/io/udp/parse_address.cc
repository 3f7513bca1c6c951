#include "transport/io/udp/parse_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>

#include <optional>
#include <string>

#include "transport/base/to_number.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

// 0: there is no such interface.
uint32_t parse_scope(std::string_view text) {
  const auto number = to_number<uint32_t>(text);
  return number ? *number : if_nametoindex(std::string(text).c_str());
}

std::optional<Address> parse_ipv4(std::string_view host) {
  SocketAddress raw{.v4 = {}};
  raw.v4.sin_family = AF_INET;
  if (inet_pton(AF_INET, std::string(host).c_str(), &raw.v4.sin_addr) != 1) return std::nullopt;
  return from_sockaddr(raw);
}

std::optional<Address> parse_ipv6(std::string_view host) {
  SocketAddress raw{.v6 = {}};
  raw.v6.sin6_family = AF_INET6;
  const size_t percent = host.find('%');
  if (percent != std::string_view::npos) {
    raw.v6.sin6_scope_id = parse_scope(host.substr(percent + 1));
    if (raw.v6.sin6_scope_id == 0) return std::nullopt;
  }
  const std::string digits(host.substr(0, percent));
  if (inet_pton(AF_INET6, digits.c_str(), &raw.v6.sin6_addr) != 1) return std::nullopt;
  const Address address = from_sockaddr(raw);
  if (address.scope_id != 0 && !is_link_local(address)) return std::nullopt;
  return address;
}

// IPv6 addresses are in brackets, because they contain colons.
std::optional<Address> parse_host(std::string_view host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? parse_ipv6(host.substr(1, host.size() - 2)) : parse_ipv4(host);
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  std::optional<Address> address;
  // A NUL byte would cut the text short for the C library.
  if (colon != std::string_view::npos && text.find('\0') == std::string_view::npos) {
    address = parse_host(text.substr(0, colon));
  }
  const auto port = to_number<uint16_t>(text.substr(colon + 1));
  if (!address || !port) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is not an address: write 192.0.2.1:18515, [2001:db8::1]:18515 or, "
                    "with an interface of this machine, [fe80::1%eth0]:18515",
                    text));
  }
  address->port = *port;
  return *address;
}

}  // namespace pacecar
