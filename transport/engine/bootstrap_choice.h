// The address of the bootstrap's TCP connections, for NICs without an IP address.
//
// Pure, except routed_source(). Thread rule: any.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "transport/io/udp/interfaces.h"

namespace pacecar {

// Whether `wish` (PACECAR_BOOTSTRAP or NCCL_SOCKET_IFNAME) matches this interface. It is a comma
// list of prefixes; after '=' of whole names, after '^' of excluded ones. Empty: any.
bool names_interface(std::string_view wish, std::string_view interface);

// Chooses among matching interfaces that are up and have an address that is not link-local. If the
// wish names interfaces, the first of them. Otherwise, in this order: `netdev`, the NIC's own; the
// one with the address `routed`; the first that is not the loopback. So the loopback is chosen only
// if it is named, or is the NIC's own.
std::optional<Address> choose_bootstrap(std::span<const InterfaceInfo> interfaces,
                                        std::string_view wish, std::string_view netdev,
                                        const std::optional<Address>& routed);

// The source address of packets on the default route; nullopt: there is none.
std::optional<Address> routed_source();

}  // namespace pacecar
