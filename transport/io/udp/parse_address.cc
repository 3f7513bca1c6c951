#include "transport/io/udp/parse_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>

#include <cstring>
#include <optional>
#include <string>

#include "transport/base/to_number.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

std::optional<Address> parse_ipv4(const std::string& host) {
  SocketAddress raw{.v4 = {}};
  raw.v4.sin_family = AF_INET;
  if (inet_pton(AF_INET, host.c_str(), &raw.v4.sin_addr) != 1) return std::nullopt;
  return from_sockaddr(raw);
}

std::optional<Address> parse_ipv6(const std::string& host) {
  const addrinfo wanted{.ai_flags = AI_NUMERICHOST, .ai_family = AF_INET6};
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return std::nullopt;
  SocketAddress raw;
  std::memcpy(&raw.v6, found->ai_addr, sizeof raw.v6);
  freeaddrinfo(found);
  const Address address = from_sockaddr(raw);
  const bool scoped = host.find('%') != std::string::npos;
  if (scoped != (address.scope_id != 0) || (scoped && !is_link_local(address))) return std::nullopt;
  return address;
}

// IPv6 addresses are in brackets, because they contain colons.
std::optional<Address> parse_host(std::string_view host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? parse_ipv6(std::string(host.substr(1, host.size() - 2)))
                   : parse_ipv4(std::string(host));
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
