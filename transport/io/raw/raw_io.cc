#include "transport/io/raw/raw_io.h"

#include <fmt/format.h>
#include <linux/filter.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"
#include "transport/io/frame.h"
#include "transport/io/sockaddr.h"
#include "transport/io/udp/interfaces.h"
#include "transport/io/udp/udp_socket.h"
#include "transport/wire/address.h"
#include "transport/wire/roce.h"

namespace pacecar {
namespace {

constexpr size_t kBurst = 64;
constexpr Bytes kMaxDatagram = 65'000;  // below IP's 65,535 with any headers
constexpr Bytes kMaxIpv4Header = 60;
constexpr size_t kEthernetBytes = 14;
constexpr size_t kIpv4UdpBytes = frame::kIpv4Bytes + frame::kUdpBytes;

struct Sockets {
  UdpSocket receiver;
  UdpSocket transmitter;
  UdpSocket holder;  // bound to the UDP port, so that the kernel does not answer "port unreachable"
};

class RawIo final : public PacketIo {
 public:
  RawIo(const SocketConfig& config, PacketIoCaps caps, Address local, Sockets sockets);

  const PacketIoCaps& caps() const override { return caps_; }
  const Address& local_address() const override { return local_; }
  uint16_t source_port(uint16_t path, TrafficClass traffic_class) const override {
    const bool control = traffic_class == TrafficClass::kControl;
    return static_cast<uint16_t>(roce::kFirstSourcePort + (control ? caps_.paths : path));
  }
  int wait_fd() const override { return sockets_.receiver.get(); }

  size_t send(std::span<const TxPacket> packets, Instant now) override;
  size_t receive(std::span<RxPacket> packets, Instant now) override;

 private:
  size_t plan(std::span<const TxPacket> packets);
  void plan_one(const TxPacket& packet, size_t slot);
  bool can_send(const TxPacket& packet) const;

  PacketIoCaps caps_;
  Address local_;
  Sockets sockets_;
  uint8_t data_tc_;
  uint8_t control_tc_;
  Address newest_;  // the destination of these headers
  HeaderTemplate newest_headers_;
  // For one burst each.
  std::array<mmsghdr, kBurst> out_{};
  std::array<std::array<iovec, 4>, kBurst> out_pieces_;
  std::array<std::array<uint8_t, kMaxFrameHeaderBytes>, kBurst> headers_;
  std::array<SocketAddress, kBurst> names_;
  std::array<mmsghdr, kBurst> in_{};
  std::array<iovec, kBurst> in_pieces_;
  std::array<Address, kBurst> sources_;
  std::vector<uint8_t> memory_;
  Refusals refusals_;
};

RawIo::RawIo(const SocketConfig& config, PacketIoCaps caps, Address local, Sockets sockets)
    : caps_(caps),
      local_(local),
      sockets_(std::move(sockets)),
      data_tc_(ip_traffic_class(config.data_tc, TrafficClass::kData)),
      control_tc_(ip_traffic_class(config.control_tc, TrafficClass::kControl)) {
  const size_t room = caps.datagram_bytes + kMaxIpv4Header + kIpv4UdpBytes;
  memory_.resize(kBurst * room);
  for (size_t i = 0; i < kBurst; ++i) {
    in_pieces_[i] = {&memory_[i * room], room};
    in_[i].msg_hdr.msg_iov = &in_pieces_[i];
    in_[i].msg_hdr.msg_iovlen = 1;
    out_[i].msg_hdr.msg_iov = out_pieces_[i].data();
    out_[i].msg_hdr.msg_name = &names_[i];
  }
}

bool RawIo::can_send(const TxPacket& packet) const {
  const Address& to = *packet.destination;
  PACECAR_CHECK(packet.path < caps_.paths);
  return packet.size() > 0 && packet.size() <= caps_.datagram_bytes && to.port != 0 && is_ipv4(to);
}

void RawIo::plan_one(const TxPacket& packet, size_t slot) {
  if (newest_headers_.size() == 0 || !same_ip(*packet.destination, newest_)) {
    newest_ = *packet.destination;
    newest_headers_ = HeaderTemplate({.source = local_, .destination = newest_});
  }
  const bool data = packet.traffic_class == TrafficClass::kData;
  newest_headers_.write(source_port(packet.path, packet.traffic_class), packet.destination->port,
                        data ? data_tc_ : control_tc_, packet.size(), headers_[slot].data());
  msghdr& message = out_[slot].msg_hdr;
  message.msg_namelen = to_sockaddr(*packet.destination, names_[slot]);
  message.msg_iovlen = 0;
  const auto header =
      std::span<const uint8_t>(headers_[slot]).subspan(kEthernetBytes, kIpv4UdpBytes);
  for (const auto piece : {header, packet.header, packet.payload, packet.trailer}) {
    if (piece.empty()) continue;
    out_pieces_[slot][message.msg_iovlen++] = {const_cast<uint8_t*>(piece.data()), piece.size()};
  }
}

// Fills out_ with packets up to the first that cannot be sent, and returns how many.
size_t RawIo::plan(std::span<const TxPacket> packets) {
  size_t count = 0;
  while (count < std::min(packets.size(), kBurst) && can_send(packets[count])) {
    plan_one(packets[count], count);
    ++count;
  }
  return count;
}

size_t RawIo::send(std::span<const TxPacket> packets, Instant /*now*/) {
  size_t taken = 0;
  while (taken < packets.size()) {
    const size_t planned = plan(packets.subspan(taken));
    const int sent = planned == 0 ? 0
                                  : sendmmsg(sockets_.transmitter.get(), out_.data(),
                                             static_cast<unsigned>(planned), MSG_DONTWAIT);
    if (sent > 0) {
      taken += static_cast<size_t>(sent);
      continue;
    }
    if (planned > 0 && errno == EINTR) continue;
    if (planned > 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)) break;
    refusals_.add(packets[taken], planned == 0 || errno != EFAULT);
    ++taken;
  }
  return taken;
}

size_t RawIo::receive(std::span<RxPacket> packets, Instant /*now*/) {
  const size_t most = std::min(packets.size(), kBurst);
  const int received = recvmmsg(sockets_.receiver.get(), in_.data(), static_cast<unsigned>(most),
                                MSG_DONTWAIT, nullptr);
  size_t count = 0;
  for (int i = 0; i < received; ++i) {
    const uint8_t* begin = static_cast<const uint8_t*>(in_pieces_[i].iov_base);
    const auto datagram = read_datagram({.bytes = {begin, in_[i].msg_len}, .type = frame::kIpv4});
    // Before it is bound, a raw socket receives all datagrams of the host.
    if (!datagram || datagram->destination != local_ || datagram->bytes.empty()) continue;
    sources_[i] = datagram->source;
    packets[count++] = RxPacket{.bytes = datagram->bytes,
                                .source = &sources_[i],
                                .ecn = datagram->ecn,
                                .ipv4_fragment = datagram->fragment};
  }
  return count;
}

Result<UdpSocket> open_raw_socket(int protocol) {
  UdpSocket raw(socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
  if (raw.get() >= 0) return raw;
  if (errno == EPERM || errno == EACCES) {
    return fail(ErrorCode::kPermission,
                "raw IPv4 sockets need a privilege: run as root, or give the program the "
                "capability with 'setcap cap_net_raw+ep PROGRAM'");
  }
  return fail(ErrorCode::kSystem, fmt::format("cannot make a raw IPv4 socket ({}): raise the limit "
                                              "of open files with 'ulimit -n'",
                                              std::strerror(errno)));
}

// Accepts only unfragmented UDP datagrams to the port of RoCE v2.
bool accept_roce_only(int fd) {
  std::array<sock_filter, 7> code = {{
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 6),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3FFF, 4, 0),  // a fragment
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
      BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, roce::kUdpPort, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0xFFFFFFFF),
      BPF_STMT(BPF_RET | BPF_K, 0),
  }};
  const sock_fprog filter = {static_cast<unsigned short>(code.size()), code.data()};
  return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) == 0;
}

Result<Sockets> open_sockets(const SocketConfig& config, const Address& local) {
  Sockets sockets;
  ASSIGN_OR_RETURN(sockets.holder, open_discarding_socket(local));
  ASSIGN_OR_RETURN(sockets.receiver, open_raw_socket(IPPROTO_UDP));
  ASSIGN_OR_RETURN(sockets.transmitter, open_raw_socket(IPPROTO_RAW));  // we write the IP header
  SocketAddress name;
  Address host = local;
  host.port = 0;
  const socklen_t length = to_sockaddr(host, name);
  if (!accept_roce_only(sockets.receiver.get()) ||
      bind(sockets.receiver.get(), &name.any, length) != 0) {
    return fail(ErrorCode::kSystem,
                fmt::format("cannot listen to raw packets for {} ({}): check that the address "
                            "belongs to an interface of this machine that is up",
                            ip_to_string(local), std::strerror(errno)));
  }
  set_receive_buffer(sockets.receiver, config.socket_buffer);
  set_send_buffer(sockets.transmitter);
  return sockets;
}

Result<Address> choose_address(const SocketConfig& config, const InterfaceInfo& interface) {
  const auto found = std::ranges::find_if(interface.addresses, is_ipv4);
  if (!config.address && (!interface.up || found == interface.addresses.end())) {
    return fail(ErrorCode::kNotFound,
                fmt::format("interface '{0}' is down or has no IPv4 address: give it one with "
                            "'ip address add ... dev {0}', or use soft:udp:{0} over IPv6",
                            interface.name));
  }
  Address local = config.address ? *config.address : *found;
  local.port = roce::kUdpPort;
  return local;
}

}  // namespace

Result<std::unique_ptr<PacketIo>> open_raw(const SocketConfig& config) {
  ASSIGN_OR_RETURN(const auto interface, find_interface(config.interface));
  ASSIGN_OR_RETURN(const auto local, choose_address(config, interface));
  ASSIGN_OR_RETURN(auto sockets, open_sockets(config, local));
  PacketIoCaps caps;
  caps.datagram_bytes = std::min(interface.mtu - kIpv4UdpBytes, kMaxDatagram);
  caps.burst_bytes = caps.datagram_bytes;
  caps.receive_bytes = receive_capacity(sockets.receiver);
  caps.paths = config.paths;
  caps.line_rate = interface.speed;
  caps.sees_ecn = true;
  caps.sees_ipv4_header = true;
  caps.jitter = kHostJitter;
  caps.pause = kHostPause;
  return std::make_unique<RawIo>(config, caps, local, std::move(sockets));
}

}  // namespace pacecar
