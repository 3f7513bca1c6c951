// Which address the bootstrap's TCP connections go to, for NICs that have none of IP themselves.
//
// Pure, but for routed_source(). Thread rule: any.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "transport/io/udp/interfaces.h"

namespace pacecar {

// Whether PACECAR_BOOTSTRAP, or NCCL_SOCKET_IFNAME, means this interface: beginnings of names with
// commas between; behind '=' whole names, behind '^' those that are not meant. Empty: any.
bool names_interface(std::string_view wish, std::string_view interface);

// Of the interfaces that are up, have an address which is not link-local, and are meant: where the
// wish names some, the first; else `netdev`, the NIC's own; else that of `routed`, from which this
// host's packets leave; else the first that leaves the host. The loopback is taken only when it is
// named, or is the NIC's own.
std::optional<Address> choose_bootstrap(std::span<const InterfaceInfo> interfaces,
                                        std::string_view wish, std::string_view netdev,
                                        const std::optional<Address>& routed);

// The source address of packets that leave by the default route; nullopt: there is none.
std::optional<Address> routed_source();

}  // namespace pacecar
