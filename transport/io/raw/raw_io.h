// PacketIo over raw IPv4 sockets of the Linux kernel, for RoCE v2, whose ICRC covers the IPv4
// header. Receives on UDP port 4791 of one address. Needs the capability CAP_NET_RAW. No allocation
// after opening. Thread rule: as PacketIo.
#pragma once

#include "transport/io/udp/udp_io.h"

namespace pacecar {

// Without an address: the first IPv4 address of the interface. The members of SocketConfig about
// the port and about received datagrams do not apply. Errors: kPermission without the capability;
// kNotFound without an IPv4 address; kSystem when UDP port 4791 of the address is taken.
Result<std::unique_ptr<PacketIo>> open_raw(const SocketConfig& config);

}  // namespace pacecar
