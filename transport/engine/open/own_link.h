// What the kernel knows of this host's own links, at the time of the call. Thread rule: any.
#pragma once

#include <optional>
#include <string>

#include "transport/wire/subnet.h"

namespace pacecar {

// Whether a network interface has a link. nullopt: the process's network namespace has no interface
// of that name, as for mlx5_0 or a DPDK port.
std::optional<bool> link_is_up(const std::string& interface);

// Why a software NIC on sockets ("soft:udp:eth0") cannot send to `peer` ("192.0.2.1:4791"; may be
// empty), for people; empty: it can, or the NIC is of another kind. Decides whom an error accuses.
std::string own_trouble(const std::string& nic, const Address& address, const std::string& peer);

// The subnet of the interface with this address. Prefix 0: none, or it is the loopback or not IPv4.
Subnet subnet_of(const Address& address);

// Whether the kernel sends packets from `own` to `peer` by the interface that has `own`.
bool leaves_by_own(const Address& own, const Address& peer);

// Why packets of a NIC on sockets to `peer` ("192.0.2.1:4791"; may be empty) leave by another
// interface, for people; empty: they do not.
std::string route_trouble(const std::string& nic, const Address& own, const std::string& peer);

}  // namespace pacecar
