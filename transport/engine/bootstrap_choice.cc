#include "transport/engine/bootstrap_choice.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>

#include "transport/base/file_descriptor.h"
#include "transport/base/take_until.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

std::optional<Address> usable_address(const InterfaceInfo& interface) {
  const auto address = interface.up ? preferred_address(interface) : std::nullopt;
  return address && !is_link_local(*address) ? address : std::nullopt;
}

}  // namespace

bool names_interface(std::string_view selection, std::string_view interface) {
  const bool others = selection.starts_with('^');
  if (others) selection.remove_prefix(1);
  const bool whole = selection.starts_with('=');
  if (whole) selection.remove_prefix(1);
  if (selection.empty()) return true;
  bool found = false;
  while (!selection.empty()) {
    const std::string_view name = take_until(selection, ',');
    found |= !name.empty() && (whole ? interface == name : interface.starts_with(name));
  }
  return found != others;
}

std::optional<Address> choose_bootstrap(std::span<const InterfaceInfo> interfaces,
                                        std::string_view selection, std::string_view netdev,
                                        const std::optional<Address>& routed) {
  const auto first = [&](const auto& good) -> std::optional<Address> {
    for (const InterfaceInfo& interface : interfaces) {
      const auto address = usable_address(interface);
      if (address && names_interface(selection, interface.name) && good(interface)) return address;
    }
    return std::nullopt;
  };
  const bool names = !selection.empty() && !selection.starts_with('^') && selection != "=";
  if (names) return first([](const InterfaceInfo&) { return true; });
  const auto own = first([&](const InterfaceInfo& each) { return each.name == netdev; });
  if (own) return own;
  const auto leaves = first([&](const InterfaceInfo& each) {
    return routed && !each.loopback &&
           std::ranges::find(each.addresses, *routed) != each.addresses.end();
  });
  return leaves ? leaves : first([](const InterfaceInfo& each) { return !each.loopback; });
}

// Connecting a datagram socket chooses its source address, and sends nothing.
std::optional<Address> routed_source() {
  sockaddr_in anywhere{.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {}, .sin_zero = {}};
  inet_pton(AF_INET, "198.51.100.1", &anywhere.sin_addr);  // TEST-NET-2 (RFC 5737)
  const FileDescriptor udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress source{};
  socklen_t size = sizeof source;
  if (connect(udp.get(), reinterpret_cast<const sockaddr*>(&anywhere), sizeof anywhere) != 0 ||
      getsockname(udp.get(), &source.any, &size) != 0) {
    return std::nullopt;
  }
  Address address = from_sockaddr(source);
  address.port = 0;
  return address;
}

}  // namespace pacecar
