#include "transport/io/udp/udp_socket.h"

#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <span>
#include <thread>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

bool set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

int get_option(int fd, int level, int name) {
  int value = 0;
  socklen_t length = sizeof(value);
  return getsockopt(fd, level, name, &value, &length) == 0 ? value : -1;
}

// Exceeds net.core.[rw]mem_max if we have the privilege; otherwise as much as that allows.
void set_buffer(int fd, int forced_name, int name, Bytes bytes) {
  const int value = static_cast<int>(std::min<Bytes>(bytes, INT_MAX / 2));
  if (!set_option(fd, SOL_SOCKET, forced_name, value)) set_option(fd, SOL_SOCKET, name, value);
}

Result<UdpSocket> open_bound(const Address& local) {
  SocketAddress raw;
  const socklen_t length = to_sockaddr(local, raw);
  UdpSocket udp(socket(raw.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (udp.get() < 0) {
    return fail(
        ErrorCode::kSystem,
        fmt::format("cannot make a UDP socket ({}): raise the limit of open "
                    "files with 'ulimit -n', use fewer paths, or allow sockets of this family",
                    std::strerror(errno)));
  }
  // An IPv6 address is unusable until no other host is known to have it: 1 to 2 s after link up.
  constexpr int kTentative = 30;
  int bound = bind(udp.get(), &raw.any, length);
  for (int i = 0; bound != 0 && errno == EADDRNOTAVAIL && !is_ipv4(local) && i < kTentative; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    bound = bind(udp.get(), &raw.any, length);
  }
  if (bound != 0) {
    if (errno == EADDRINUSE && local.port == 0) {
      return fail(ErrorCode::kSystem,
                  fmt::format("no UDP port of {} is free: widen net.ipv4.ip_local_port_range, or "
                              "end programs that use its ports",
                              ip_to_string(local)));
    }
    if (errno == EADDRINUSE) {
      return fail(
          ErrorCode::kUnavailable,
          fmt::format("the UDP port of {} is taken, by another program or (4791) by the "
                      "kernel's rdma_rxe: end that ('rmmod rdma_rxe'), use another address, "
                      "or use soft:udp with PACECAR_WIRE=extended, which takes any port",
                      to_string(local)));
    }
    return fail(
        ErrorCode::kSystem,
        fmt::format("cannot bind a UDP socket to {} ({}): check that the address belongs to an "
                    "interface of this machine that is up",
                    to_string(local), std::strerror(errno)));
  }
  return udp;
}

// To the address's port, or to the first free one of the range.
Result<UdpSocket> open_bound(Address local, PortRange ports) {
  if (local.port != 0 || ports.first == 0) return open_bound(local);
  Result<UdpSocket> udp;
  const bool ended = ports.find([&](uint16_t port) {
    local.port = port;
    udp = open_bound(local);
    return udp || udp.error().code != ErrorCode::kUnavailable;
  });
  if (ended) return udp;
  return fail(ErrorCode::kUnavailable,
              fmt::format("all UDP ports of PACECAR_PORTS={}-{} on {} are taken: widen the range",
                          ports.first, ports.last, ip_to_string(local)));
}

// With errno.
tl::unexpected<Error> refused(std::string_view what, std::string_view needed) {
  return fail(ErrorCode::kSystem, fmt::format("the kernel refuses {} ({}): {} is needed", what,
                                              std::strerror(errno), needed));
}

tl::unexpected<Error> refused_option(const Address& local) {
  return refused(fmt::format("an option of a sending UDP socket on {}", to_string(local)),
                 "a Linux kernel without a system-call filter on setsockopt");
}

bool attach(int fd, std::span<sock_filter> program) {
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) == 0;
}

}  // namespace

Result<UdpSocket> open_receive_socket(const Address& local, Bytes buffer_bytes, PortRange ports) {
  ASSIGN_OR_RETURN(auto udp, open_bound(local, ports));
  const int fd = udp.get();
  set_receive_buffer(udp, buffer_bytes);
  const bool reports_class = is_ipv4(local) ? set_option(fd, IPPROTO_IP, IP_RECVTOS, 1)
                                            : set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
  set_option(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1);  // without it RxPacket::waited stays unknown
  if (!set_option(fd, SOL_UDP, UDP_GRO, 1) || !reports_class) {
    return refused("UDP_GRO or the traffic class of datagrams", "Linux 5.0 or newer");
  }
  return udp;
}

Result<void> accept_without_checksum(const UdpSocket& socket) {
  if (set_option(socket.get(), SOL_UDP, UDP_NO_CHECK6_RX, 1)) return {};
  return refused("UDP over IPv6 without checksums", "Linux 3.16 or newer");
}

Result<UdpSocket> open_discarding_socket(const Address& local) {
  ASSIGN_OR_RETURN(auto udp, open_bound(local));
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  if (!attach(udp.get(), {&drop, 1})) return refused_option(local);
  set_option(udp.get(), SOL_SOCKET, SO_RCVBUF, 0);  // the kernel's minimum
  return udp;
}

Result<void> drop_unless(const UdpSocket& socket, uint64_t bits, uint64_t value) {
  constexpr uint32_t kUdpHeader = 8;
  const auto upper = [](uint64_t word) { return static_cast<uint32_t>(word >> 32); };
  const auto lower = [](uint64_t word) { return static_cast<uint32_t>(word); };
  std::array<sock_filter, 8> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kUdpHeader),  // the kernel drops a shorter datagram
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, upper(bits)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, upper(value), 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kUdpHeader + 4),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, lower(bits)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, lower(value), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, ~0U),
      BPF_STMT(BPF_RET | BPF_K, 0),
  }};
  if (attach(socket.get(), program)) return {};
  return refused("a packet filter", "a kernel without a system-call filter on setsockopt");
}

void set_receive_buffer(const UdpSocket& socket, Bytes bytes) {
  set_buffer(socket.get(), SO_RCVBUFFORCE, SO_RCVBUF, bytes);
}

void set_send_buffer(const UdpSocket& socket) {
  set_buffer(socket.get(), SO_SNDBUFFORCE, SO_SNDBUF, 1 << 20);
}

Result<UdpSocket> open_transmit_socket(const Address& local, uint8_t traffic_class) {
  Address any_port = local;
  any_port.port = 0;
  ASSIGN_OR_RETURN(auto udp, open_discarding_socket(any_port));
  const int fd = udp.get();
  // PROBE sets "don't fragment" and believes the device's MTU, not ICMP, which anyone can forge.
  const bool good = is_ipv4(local)
                        ? set_option(fd, IPPROTO_IP, IP_TOS, traffic_class) &&
                              set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
                        : set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, traffic_class) &&
                              set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
  if (!good) return refused_option(local);
  set_send_buffer(udp);
  return udp;
}

Address bound_address(const UdpSocket& socket) {
  SocketAddress raw;
  socklen_t length = sizeof(raw);
  PACECAR_CHECK(getsockname(socket.get(), &raw.any, &length) == 0);
  return from_sockaddr(raw);
}

Bytes receive_capacity(const UdpSocket& socket) {
  return static_cast<Bytes>(std::max(get_option(socket.get(), SOL_SOCKET, SO_RCVBUF), 0)) / 2;
}

}  // namespace pacecar
