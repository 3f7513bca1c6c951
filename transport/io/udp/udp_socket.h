// The sockets of a UdpIo: how they are made and which options they carry. Control path only.
#pragma once

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/wire/packet.h"

namespace pacecar {

// Owns a file descriptor.
class UdpSocket {
 public:
  UdpSocket() = default;
  explicit UdpSocket(int fd) : fd_(fd) {}
  UdpSocket(UdpSocket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  UdpSocket& operator=(UdpSocket&& other) noexcept;
  ~UdpSocket();

  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// A socket bound to `local`'s address and a port of the kernel's choice, that joins datagrams
// (UDP_GRO) and reports their traffic class.
Result<UdpSocket> open_receive_socket(const Address& local, Bytes buffer_bytes);

// A socket that only sends, from a port of its own: what arrives there is dropped unseen. Datagrams
// carry the whole `traffic_class` byte (DSCP and ECN), and are never fragmented.
Result<UdpSocket> open_transmit_socket(const Address& local, Bytes buffer_bytes,
                                       uint8_t traffic_class);

// From here on, what does not begin so is dropped unseen, before it takes room or time of ours:
// `value` in those `bits` of the first 8 bytes, in network order. Errors: kSystem.
Result<void> drop_unless(const UdpSocket& socket, uint64_t bits, uint64_t value);

// Lets in IPv6 datagrams without a UDP checksum, as RDMA NICs send them: RoCE v2 has its own.
Result<void> accept_without_checksum(const UdpSocket& socket);

// A socket that holds `local` and drops unseen what arrives there.
Result<UdpSocket> open_deaf_socket(const Address& local);

// As much as the system allows.
void set_receive_buffer(const UdpSocket& socket, Bytes bytes);
void set_send_buffer(const UdpSocket& socket, Bytes bytes);

// The address and port that a socket is bound to.
Result<Address> bound_address(const UdpSocket& socket);

// What the receive buffer holds for sure. The kernel charges its own overhead to the same account;
// half is its own rule of thumb, and too careful for joined datagrams.
Bytes receive_capacity(const UdpSocket& socket);

bool can_segment(const UdpSocket& socket);

}  // namespace pacecar
