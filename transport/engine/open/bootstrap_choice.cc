#include "transport/engine/open/bootstrap_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "transport/base/return_if_error.h"
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
    const std::string name = name_of_label(take_until(selection, ','));
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

Result<Address> bootstrap_address(std::string_view selection, std::string_view netdev) {
  ASSIGN_OR_RETURN(const auto interfaces, list_interfaces());
  const auto address = choose_bootstrap(interfaces, selection, netdev, routed_source());
  if (address) return *address;
  return fail(ErrorCode::kNotFound,
              fmt::format("no interface has an address by which peers could set up connections: "
                          "see 'ip address' and PACECAR_BOOTSTRAP ('{}')",
                          selection));
}

std::optional<Address> routed_source() {
  constexpr Address kAnywhere{.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 198, 51, 100, 1}};
  auto source = source_towards(kAnywhere);  // TEST-NET-2 (RFC 5737)
  if (source) source->port = 0;
  return source;
}

}  // namespace pacecar
