// What the kernel knows of this host's own links, at the time of the call. Thread rule: any.
#pragma once

#include <optional>
#include <string>

#include "transport/wire/subnet.h"

namespace pacecar {

// Whether a network interface has a link. nullopt: the process's network namespace has no interface
// of that name, as for mlx5_0 or a DPDK port.
std::optional<bool> link_is_up(const std::string& interface);

// What is wrong with the interface of a software NIC on sockets ("soft:udp:eth0"), for people;
// empty: nothing, or the NIC is of another kind. It decides whom an error accuses.
std::string own_trouble(const std::string& nic, const Address& address);

// Of the interface with this address. A prefix of 0: none, or it is the loopback or not IPv4.
Subnet subnet_of(const Address& address);

// Whether packets from `own` to `peer` leave by the interface that has `own`.
bool routes_over_own(const Subnet& own, const Address& peer);

}  // namespace pacecar
