#include "transport/wire/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

namespace pacecar {
namespace {

constexpr std::array<uint8_t, 12> kIpv4Mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

std::string to_string(const Address& address) {
  const auto& ip = address.ip;
  if (std::equal(kIpv4Mapped.begin(), kIpv4Mapped.end(), ip.begin())) {
    return fmt::format("{}.{}.{}.{}:{}", ip[12], ip[13], ip[14], ip[15], address.port);
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, ip.data(), text.data(), text.size());  // computes only: no I/O
  if (address.scope_id == 0) return fmt::format("[{}]:{}", text.data(), address.port);
  return fmt::format("[{}%{}]:{}", text.data(), address.scope_id, address.port);
}

}  // namespace pacecar
