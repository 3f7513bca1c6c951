// The address of the bootstrap's TCP connections, for NICs without an IP address. Pure, except
// routed_source(). Thread rule: any.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "transport/io/udp/interfaces.h"

namespace pacecar {

// Whether `selection` (PACECAR_BOOTSTRAP or NCCL_SOCKET_IFNAME) matches: prefixes separated by
// commas. A leading '=' makes them whole names, '^' excludes them, '^=' does both. Empty: any.
bool names_interface(std::string_view selection, std::string_view interface);

// Chooses among matching interfaces that are up and have an address that is not link-local. If
// `selection` names interfaces: the first that matches. Otherwise, in this order: `netdev`, which
// is the NIC's own; the one with the address `routed`; the first that is not the loopback.
std::optional<Address> choose_bootstrap(std::span<const InterfaceInfo> interfaces,
                                        std::string_view selection, std::string_view netdev,
                                        const std::optional<Address>& routed);

// Chooses among this host's interfaces. Errors: as list_interfaces; kNotFound.
Result<Address> bootstrap_address(std::string_view selection, std::string_view netdev);

// The IPv4 source address of the default route; nullopt: none, as on hosts with IPv6 only.
std::optional<Address> routed_source();

}  // namespace pacecar
