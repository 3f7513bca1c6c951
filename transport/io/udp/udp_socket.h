// The sockets of a UdpIo: how they are made and which options they carry. Control path only.
#pragma once

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/wire/packet.h"

namespace pacecar {

using UdpSocket = FileDescriptor;

// A socket bound to `local`'s address and a port of the kernel's choice, that joins datagrams
// (UDP_GRO) and reports their traffic class.
Result<UdpSocket> open_receive_socket(const Address& local, Bytes buffer_bytes);

// A socket that only sends, from a port of its own; the kernel drops what arrives there. Datagrams
// carry the whole `traffic_class` byte (DSCP and ECN), and are never fragmented.
Result<UdpSocket> open_transmit_socket(const Address& local, Bytes buffer_bytes,
                                       uint8_t traffic_class);

// From here on the kernel drops datagrams without `value` in those `bits` of the first 8 bytes
// (network order), so that they take no buffer space. Errors: kSystem.
Result<void> drop_unless(const UdpSocket& socket, uint64_t bits, uint64_t value);

// Lets in IPv6 datagrams without a UDP checksum, as RDMA NICs send them: RoCE v2 has its own.
Result<void> accept_without_checksum(const UdpSocket& socket);

// A socket that reserves `local`; the kernel drops what arrives there.
Result<UdpSocket> open_deaf_socket(const Address& local);

// As much as the system allows.
void set_receive_buffer(const UdpSocket& socket, Bytes bytes);
void set_send_buffer(const UdpSocket& socket, Bytes bytes);

// The address and port that a socket is bound to.
Result<Address> bound_address(const UdpSocket& socket);

// The guaranteed capacity of the receive buffer. The kernel counts its overhead, too; its rule of
// thumb is half, which is too cautious for joined datagrams.
Bytes receive_capacity(const UdpSocket& socket);

bool can_segment(const UdpSocket& socket);

}  // namespace pacecar
