// Which address the bootstrap's TCP connections use, for NICs without an IP address.
//
// Pure, but for routed_source(). Thread rule: any.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "transport/io/udp/interfaces.h"

namespace pacecar {

// Whether PACECAR_BOOTSTRAP, or NCCL_SOCKET_IFNAME, matches this interface: a comma list of
// prefixes; after '=' of whole names, after '^' of excluded ones. Empty: any.
bool names_interface(std::string_view wish, std::string_view interface);

// Chooses among matching interfaces that are up and have an address that is not link-local: the
// first, if the wish names some; else `netdev`, the NIC's own; else that of `routed`, the source of
// this host's packets; else the first that leaves the host. The loopback is chosen only if it is
// named, or is the NIC's own.
std::optional<Address> choose_bootstrap(std::span<const InterfaceInfo> interfaces,
                                        std::string_view wish, std::string_view netdev,
                                        const std::optional<Address>& routed);

// The source address of packets that leave by the default route; nullopt: there is none.
std::optional<Address> routed_source();

}  // namespace pacecar
