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

// Of the interface with this address. A prefix of 0: none, or it is the loopback or not IPv4.
Subnet subnet_of(const Address& address);

// Where packets from `own` to `peer` leave.
struct Route {
  std::string own;     // the interface that has `own`
  std::string by;      // that by which the kernel sends; "lo" to this host, empty: no route
  std::string subnet;  // of `own`: "192.0.2.0/24"; empty: it is alone in it

  bool over_own() const { return !own.empty() && by == own; }
};
Route route_of(const Address& own, const Address& peer);

}  // namespace pacecar
