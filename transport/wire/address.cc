#include "transport/wire/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace pacecar {

bool is_ipv4(const Address& address) {
  return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), address.ip.begin());
}

bool is_unspecified(const Address& address) {
  const auto ip = std::span(address.ip).subspan(is_ipv4(address) ? kIpv4Prefix.size() : 0);
  return std::ranges::all_of(ip, [](uint8_t byte) { return byte == 0; });
}

bool is_loopback(const Address& address) {
  constexpr std::array<uint8_t, 16> kLoopbackV6 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return is_ipv4(address) ? address.ip[kIpv4Prefix.size()] == 127 : address.ip == kLoopbackV6;
}

bool is_link_local(const Address& address) {
  return address.ip[0] == 0xFE && (address.ip[1] & 0xC0) == 0x80;
}

std::string ip_to_string(const Address& address) {
  const auto& ip = address.ip;
  if (is_ipv4(address)) return fmt::format("{}.{}.{}.{}", ip[12], ip[13], ip[14], ip[15]);
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, ip.data(), text.data(), text.size());  // only computes: no I/O, no state
  if (address.scope_id == 0) return text.data();
  return fmt::format("{}%{}", text.data(), address.scope_id);
}

std::string to_string(const Address& address) {
  return fmt::format(fmt::runtime(is_ipv4(address) ? "{}:{}" : "[{}]:{}"), ip_to_string(address),
                     address.port);
}

}  // namespace pacecar
