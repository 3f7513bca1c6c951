#include "transport/io/udp/udp_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"
#include "transport/io/frame.h"
#include "transport/io/sockaddr.h"
#include "transport/io/switch_traces.h"
#include "transport/io/udp/interfaces.h"
#include "transport/io/udp/receive_ring.h"
#include "transport/io/udp/send_batch.h"
#include "transport/io/udp/udp_socket.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

constexpr Bytes kMaxDatagram = SendBatch::kMaxGroupBytes;
constexpr Bytes kMinDatagram = 256;  // below this no useful payload is left
constexpr Bytes kJoinedBurst = 60'000;
constexpr uint32_t kCallsBeforeConnect = 16;
// A socket that takes nothing for this time holds packets to a host that does not answer ARP.
// Others must not wait for it: packets are lost, as at a full switch.
constexpr Duration kStuck = Duration::from_ms(20);
// A connected socket refuses one call, without sending, for each ICMP error that arrives, which
// anyone can forge. The next call succeeds, unless another arrives within a microsecond.
constexpr int kCallsPerIcmp = 4;

class UdpIo final : public PacketIo {
 public:
  // A sending socket. It is connected to its most frequent peer, which saves the kernel the route
  // look-up; packets to other peers carry their address.
  struct Transmitter {
    UdpSocket socket;
    uint16_t port = 0;
    Address newest{};
    uint32_t in_a_row = 0;  // calls to `newest`
    Address connected{};    // port 0: none
    Instant full_since = Instant::never();
  };
  UdpIo(PacketIoCaps caps, Address local, UdpSocket receiver, std::vector<Transmitter> transmitters)
      : caps_(caps),
        local_(local),
        receiver_(std::move(receiver)),
        transmitters_(std::move(transmitters)),
        batch_(caps.datagram_bytes, is_ipv4(local), caps.identifies_datagrams) {}

  const PacketIoCaps& caps() const override { return caps_; }
  const Address& local_address() const override { return local_; }
  int wait_fd() const override { return receiver_.get(); }

  uint16_t source_port(uint16_t path, TrafficClass traffic_class) const override {
    return transmitters_[transmitter_of(path, traffic_class)].port;
  }
  size_t send(std::span<const TxPacket> packets, Instant now) override;
  Refusals refusals() const override { return refusals_; }
  size_t receive(std::span<RxPacket> packets, Instant now) override;

 private:
  size_t transmitter_of(uint16_t path, TrafficClass traffic_class) const;
  void connect_if_frequent(Transmitter& transmitter, const Address& destination);
  size_t submit(Transmitter& transmitter, std::span<const TxPacket> packets, Instant now,
                bool& full);
  int hand_over(int fd, std::span<mmsghdr> messages);

  PacketIoCaps caps_;
  Address local_;
  UdpSocket receiver_;
  std::vector<Transmitter> transmitters_;  // one per path, then one for control
  Instant one_by_one_until_;               // UDP_SEGMENT has failed
  Refusals refusals_;
  SendBatch batch_;
  ReceiveRing ring_;
  SwitchTraces traces_;
};

size_t UdpIo::transmitter_of(uint16_t path, TrafficClass traffic_class) const {
  if (traffic_class == TrafficClass::kControl) return caps_.paths;
  PACECAR_CHECK(path < caps_.paths);
  return path;
}

void UdpIo::connect_if_frequent(Transmitter& transmitter, const Address& destination) {
  // The kernel would number a connected socket's datagrams from an unknown start.
  if (caps_.identifies_datagrams) return;
  if (destination == transmitter.connected) return;
  if (destination != transmitter.newest) {
    transmitter.newest = destination;
    transmitter.in_a_row = 0;
  }
  if (++transmitter.in_a_row < kCallsBeforeConnect) return;
  transmitter.in_a_row = 0;
  SocketAddress raw;
  const socklen_t length = to_sockaddr(destination, raw);
  // If refused (no route), the sends report it.
  const bool connected = ::connect(transmitter.socket.get(), &raw.any, length) == 0;
  transmitter.connected = connected ? destination : Address{};
}

size_t UdpIo::send(std::span<const TxPacket> packets, Instant now) {
  size_t taken = 0;
  bool full = false;
  while (taken < packets.size() && !full) {
    const auto rest = packets.subspan(taken);
    Transmitter& transmitter = transmitters_[transmitter_of(rest[0].path, rest[0].traffic_class)];
    if (batch_.plan(rest, now >= one_by_one_until_, transmitter.connected) > 0) {
      taken += submit(transmitter, rest, now, full);
      connect_if_frequent(transmitter, *rest[0].destination);
    } else {
      ++taken;  // it cannot be sent at all
    }
  }
  return taken;
}

// Hands the planned batch of `packets` to the kernel; returns how many were sent or refused. Fewer
// than planned: the socket is full, or one_by_one_until_ has changed and the rest needs a new plan.
size_t UdpIo::submit(Transmitter& transmitter, std::span<const TxPacket> packets, Instant now,
                     bool& full) {
  const int fd = transmitter.socket.get();
  const auto messages = batch_.messages();
  const int most_refusals = transmitter.connected.port == 0 ? 1 : kCallsPerIcmp;
  int refusals = 0;  // of this group
  size_t group = 0;
  size_t taken = 0;
  while (group < messages.size()) {
    const int sent = hand_over(fd, messages.subspan(group));
    if (sent > 0) {
      for (const size_t end = group + static_cast<size_t>(sent); group < end; ++group) {
        taken += batch_.packets_in(group);
      }
      refusals = 0;
      transmitter.full_since = Instant::never();
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
      transmitter.full_since = std::min(transmitter.full_since, now);
      full = now - transmitter.full_since < kStuck;
      if (full) break;
    }
    if ((errno == EIO || errno == EINVAL || errno == EFAULT) && batch_.packets_in(group) > 1) {
      // The device cannot cut datagrams, or its MTU is smaller now and flows have not noticed yet;
      // or the memory of one of them is gone.
      one_by_one_until_ = now + Duration::from_s(1);
      break;
    }
    if (++refusals < most_refusals) continue;
    refusals = 0;
    refusals_.add(packets[taken], errno != EFAULT);
    taken += batch_.packets_in(group);
    ++group;
  }
  return taken;
}

// Returns how many leading messages were sent, or -1 with `errno`.
int UdpIo::hand_over(int fd, std::span<mmsghdr> messages) {
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  if (const auto bytes = batch_.short_message(); !bytes.empty()) {
    const msghdr& header = messages[0].msg_hdr;
    const auto* name = static_cast<const sockaddr*>(header.msg_name);
    return sendto(fd, bytes.data(), bytes.size(), kFlags, name, header.msg_namelen) < 0 ? -1 : 1;
  }
  return sendmmsg(fd, messages.data(), static_cast<unsigned>(messages.size()), kFlags);
}

size_t UdpIo::receive(std::span<RxPacket> packets, Instant /*now*/) {
  const size_t count = ring_.receive(receiver_.get(), packets);
  traces_.read(packets.first(count));
  return count;
}

Result<Address> local_address_of(const SocketConfig& config, const InterfaceInfo& interface) {
  if (!interface.up) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("interface '{0}' is down: bring it up with 'ip link set {0} up'",
                            interface.name));
  }
  auto local = config.address ? config.address : preferred_address(interface);
  if (config.address &&
      std::ranges::find(interface.addresses, *config.address) == interface.addresses.end()) {
    return fail(
        ErrorCode::kNotFound,
        fmt::format("interface '{}' does not have the address {}: name one that 'ip address' "
                    "shows for it, with port 0",
                    interface.name, to_string(*config.address)));
  }
  if (!local) {
    return fail(ErrorCode::kNotFound,
                fmt::format("interface '{0}' has no IP address: give it one with "
                            "'ip address add ... dev {0}'",
                            interface.name));
  }
  local->port = config.port;
  return *local;
}

Result<std::vector<UdpIo::Transmitter>> open_transmitters(const SocketConfig& config,
                                                          const Address& local) {
  const uint8_t data_tc = ip_traffic_class(config.data_tc, TrafficClass::kData);
  const uint8_t control_tc = ip_traffic_class(config.control_tc, TrafficClass::kControl);
  std::vector<UdpIo::Transmitter> transmitters;
  for (uint32_t i = 0; i <= config.paths; ++i) {
    ASSIGN_OR_RETURN(auto udp,
                     open_transmit_socket(local, i < config.paths ? data_tc : control_tc));
    const uint16_t port = bound_address(udp).port;
    transmitters.push_back({.socket = std::move(udp), .port = port});
  }
  return transmitters;
}

Result<Bytes> datagram_bytes_of(const InterfaceInfo& interface, bool ipv4) {
  const Bytes headers = (ipv4 ? frame::kIpv4Bytes : frame::kIpv6Bytes) + frame::kUdpBytes;
  const Bytes room = interface.mtu > headers ? interface.mtu - headers : 0;
  const Bytes datagram = std::min(room, kMaxDatagram);
  if (datagram < kMinDatagram) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "interface '{}' with MTU {} leaves {} bytes for a datagram: at least {} are needed",
            interface.name, interface.mtu, datagram, kMinDatagram));
  }
  return datagram;
}

}  // namespace

Result<std::unique_ptr<PacketIo>> open_udp(const SocketConfig& config) {
  ASSIGN_OR_RETURN(const auto interface, find_interface(config.interface));
  ASSIGN_OR_RETURN(const auto local, local_address_of(config, interface));
  ASSIGN_OR_RETURN(const auto datagram, datagram_bytes_of(interface, is_ipv4(local)));
  ASSIGN_OR_RETURN(auto receiver, open_receive_socket(local, config.socket_buffer, config.ports));
  if (config.without_checksum) {
    RETURN_IF_ERROR(accept_without_checksum(receiver));
  }
  if (config.beginning_bits != 0) {
    RETURN_IF_ERROR(drop_unless(receiver, config.beginning_bits, config.beginning));
  }
  const Address bound = bound_address(receiver);
  ASSIGN_OR_RETURN(auto transmitters, open_transmitters(config, local));

  PacketIoCaps caps;
  caps.datagram_bytes = datagram;
  caps.burst_bytes = std::max(kJoinedBurst, datagram);
  caps.receive_bytes = receive_capacity(receiver);
  caps.paths = config.paths;
  caps.line_rate = interface.speed;
  caps.checks_payload = true;  // the UDP checksum
  caps.sees_ecn = true;
  caps.identifies_datagrams = config.identifies && is_ipv4(local);
  caps.jitter = kHostJitter;
  caps.pause = kHostPause;
  return std::make_unique<UdpIo>(caps, bound, std::move(receiver), std::move(transmitters));
}

}  // namespace pacecar
