// Makes the sockets of packet I/Os, with their options. Control path only. Thread rule: any thread.
#pragma once

#include "transport/base/file_descriptor.h"
#include "transport/base/port_range.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/wire/packet.h"

namespace pacecar {

using UdpSocket = FileDescriptor;

// A socket that is bound to `local`, joins datagrams (UDP_GRO) and reports their traffic class.
// Port 0: the first free one of `ports`.
Result<UdpSocket> open_receive_socket(const Address& local, Bytes buffer_bytes,
                                      PortRange ports = {});

// A socket that only sends, from a port of its own; the kernel drops received datagrams. Sent ones
// have this traffic class byte (DSCP and ECN), and are never fragmented.
Result<UdpSocket> open_transmit_socket(const Address& local, uint8_t traffic_class);

// From here on the kernel drops datagrams that do not have `value` in these `bits` of their first 8
// bytes (network order), so that they take no buffer space. Errors: kSystem.
Result<void> drop_unless(const UdpSocket& socket, uint64_t bits, uint64_t value);

// Receives IPv6 datagrams without UDP checksum, too: RDMA NICs send them, as RoCE v2 has the ICRC.
Result<void> accept_without_checksum(const UdpSocket& socket);

// A socket that occupies `local`; the kernel drops the datagrams that it receives.
Result<UdpSocket> open_discarding_socket(const Address& local);

// To `bytes`, or as many as the system allows.
void set_receive_buffer(const UdpSocket& socket, Bytes bytes);
// To 1 MiB, or as much as the system allows; a socket whose send buffer is full takes no more.
void set_send_buffer(const UdpSocket& socket);

Address bound_address(const UdpSocket& socket);  // The address and port that a socket is bound to.

// The guaranteed capacity of the receive buffer, in bytes of datagrams. The kernel counts its
// overhead, too, which it estimates as one half. Joined datagrams have less.
Bytes receive_capacity(const UdpSocket& socket);

}  // namespace pacecar
