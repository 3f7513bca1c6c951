#include "transport/io/dpdk/dpdk_io.h"

#include <fmt/format.h>
#include <net/if.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"
#include "transport/io/dpdk/eal.h"
#include "transport/io/dpdk/known_frames.h"
#include "transport/io/dpdk/neighbors/neighbors.h"
#include "transport/io/dpdk/port.h"
#include "transport/io/dpdk/transmit_batch.h"
#include "transport/io/kernel_network.h"
#include "transport/io/udp/udp_socket.h"
#include "transport/wire/address.h"
#include "transport/wire/roce.h"

namespace pacecar {
namespace {

constexpr size_t kReceiveBurst = 64;
// With less, no useful payload is left.
constexpr Bytes kNeededMtu = 256 + frame::kIpv6Bytes + frame::kUdpBytes;
// How often the link's state is read: while it is down, and up.
constexpr Duration kLinkDownInterval = Duration::from_ms(2);
constexpr Duration kLinkUpInterval = Duration::from_ms(200);

// Frees received buffers. Nearly all are single-segment packets of one pool without other
// references: such a burst is freed by one call.
void free_received(std::span<rte_mbuf* const> buffers) {
  rte_mempool* const pool = buffers.front()->pool;
  const bool plain = std::ranges::all_of(buffers, [pool](const rte_mbuf* buffer) {
    return buffer->pool == pool && rte_mbuf_refcnt_read(buffer) == 1 && buffer->nb_segs == 1 &&
           RTE_MBUF_DIRECT(buffer);
  });
  const auto count = static_cast<unsigned>(buffers.size());
  if (plain) {
    rte_mempool_put_bulk(pool, reinterpret_cast<void* const*>(buffers.data()), count);
  } else {
    rte_pktmbuf_free_bulk(const_cast<rte_mbuf**>(buffers.data()), count);
  }
}

// The frame of a packet in one segment.
std::span<const uint8_t> frame_of(const rte_mbuf& buffer) {
  return {rte_pktmbuf_mtod(&buffer, const uint8_t*), buffer.data_len};
}

class DpdkIo final : public PacketIo {
 public:
  DpdkIo(const DpdkConfig& config, PacketIoCaps caps, const Address& local,
         std::unique_ptr<DpdkPort> port, UdpSocket port_holder)
      : caps_(caps),
        local_(local),
        port_(std::move(port)),
        port_holder_(std::move(port_holder)),
        device_(config.device),
        kernel_(if_nametoindex(port_->info().interface.c_str())),
        neighbors_(
            {.mac = port_->info().mac, .address = {.ip = local.ip}, .vlan = config.device.vlan},
            [this](const Address& to) { return next_hop(to); }),
        batch_(*port_, local, config.device.vlan.has_value()),
        data_tc_(ip_traffic_class(config.data_tc, TrafficClass::kData)),
        control_tc_(ip_traffic_class(config.control_tc, TrafficClass::kControl)) {}
  ~DpdkIo() override { release(); }

  const PacketIoCaps& caps() const override { return caps_; }
  const Address& local_address() const override { return local_; }
  uint16_t source_port(uint16_t path, TrafficClass traffic_class) const override {
    const bool control = traffic_class == TrafficClass::kControl;
    return static_cast<uint16_t>(roce::kFirstSourcePort + (control ? caps_.paths : path));
  }
  int wait_fd() const override { return -1; }

  size_t send(std::span<const TxPacket> packets, Instant now) override;
  size_t receive(std::span<RxPacket> packets, Instant now) override;

 private:
  bool can_send(const TxPacket& packet) const;
  Address next_hop(const Address& to);
  const HeaderTemplate* headers_to(const TxPacket& packet, Instant now);
  size_t plan(std::span<const TxPacket> packets, Instant now);
  bool read(rte_mbuf& buffer, size_t slot, RxPacket& packet, Instant now);
  [[gnu::noinline]] bool read_unknown(std::span<const uint8_t> frame, FrameDatagram& datagram,
                                      Instant now);
  void release();
  [[gnu::noinline]] void drop_damaged();
  [[gnu::noinline]] void poll_link(Instant now, Duration interval);
  void ask(const NeighborMessage& question, Instant now);
  void send_message(const NeighborMessage& message);

  PacketIoCaps caps_;
  Address local_;
  std::unique_ptr<DpdkPort> port_;
  UdpSocket port_holder_;  // if the kernel has our address: keeps it from answering for us
  DpdkDevice device_;
  KernelNetwork kernel_;
  Neighbors neighbors_;
  TransmitBatch batch_;
  uint8_t data_tc_;
  uint8_t control_tc_;
  bool link_up_ = false;
  Instant link_seen_;
  KnownFrames known_;
  // The newest burst; its buffers are kept until the next receive().
  size_t held_ = 0;
  std::array<rte_mbuf*, kReceiveBurst> buffers_{};
  std::array<Address, kReceiveBurst> sources_;
};

bool DpdkIo::can_send(const TxPacket& packet) const {
  const Address& to = *packet.destination;
  PACECAR_CHECK(packet.path < caps_.paths);
  return packet.size() > 0 && packet.size() <= caps_.datagram_bytes && to.port != 0 &&
         is_ipv4(to) == is_ipv4(local_);
}

// A gateway among the device's arguments replaces the kernel's routes, and the link's prefix among
// them precedes these. They do not apply to a VLAN, which is another network.
Address DpdkIo::next_hop(const Address& to) {
  const bool kernels = !device_.gateway && !device_.vlan && !port_->info().interface.empty();
  return kernels && !device_.names_on_link(local_, to) ? kernel_.next_hop(to)
                                                       : device_.next_hop(local_, to);
}

const HeaderTemplate* DpdkIo::headers_to(const TxPacket& packet, Instant now) {
  const Neighbors::Found found = neighbors_.find(*packet.destination, now);
  if (found.ask) ask(neighbors_.question(*packet.destination), now);
  return found.headers;
}

// Plans leading packets and returns how many; 0 if the first cannot be sent at all.
size_t DpdkIo::plan(std::span<const TxPacket> packets, Instant now) {
  size_t count = 0;
  const HeaderTemplate* headers = nullptr;
  const TxPacket* newest = nullptr;
  size_t newest_size = 0;
  for (const TxPacket& packet : packets) {
    const size_t size = packet.size();
    // Most packets of a burst have the same headers.
    if (newest == nullptr || packet.destination != newest->destination ||
        packet.path != newest->path || packet.traffic_class != newest->traffic_class ||
        size != newest_size) {
      if (!can_send(packet)) break;
      if (newest == nullptr || *packet.destination != *newest->destination) {
        headers = headers_to(packet, now);
        if (headers == nullptr) break;
      }
      const bool data = packet.traffic_class == TrafficClass::kData;
      batch_.write_headers(*headers, source_port(packet.path, packet.traffic_class), packet,
                           data ? data_tc_ : control_tc_);
      newest = &packet;
      newest_size = size;
    }
    batch_.add(packet);
    ++count;
  }
  return count;
}

size_t DpdkIo::send(std::span<const TxPacket> packets, Instant now) {
  size_t taken = 0;
  while (taken < packets.size()) {
    const auto rest = packets.subspan(taken);
    const size_t room = batch_.begin(rest.size());
    const size_t planned = plan(rest.first(room), now);
    const size_t sent = batch_.submit();
    taken += sent;
    if (planned > 0 && sent == planned) continue;
    const bool full = room == 0 || planned > 0;
    if (full) {
      poll_link(now, kLinkDownInterval);
      if (link_up_) break;
    }
    ++taken;  // lost
  }
  return taken;
}

void DpdkIo::ask(const NeighborMessage& question, Instant now) {
  if (!port_->info().steered) return send_message(question);
  const auto mac = kernel_.find_mac(question.target);
  if (!mac) return;
  neighbors_.receive({.kind = NeighborMessage::Kind::kAnswer,
                      .sender = question.target,
                      .sender_mac = *mac,
                      .target = question.sender},
                     now);
}

void DpdkIo::send_message(const NeighborMessage& message) {
  std::array<uint8_t, kMaxNeighborMessageBytes> frame{};
  const size_t length = write_neighbor_message(message, neighbors_.self().vlan, frame);
  batch_.send_frame(std::span(frame).first(length));
}

void DpdkIo::poll_link(Instant now, Duration interval) {
  if (link_seen_ != Instant() && now - link_seen_ < interval) return;
  link_seen_ = now;
  const bool was_up = std::exchange(link_up_, port_->link_is_up());
  if (link_up_ && !was_up && !port_->info().steered) send_message(neighbors_.announcement());
}

void DpdkIo::release() {
  if (held_ > 0) free_received(std::span(buffers_).first(held_));
  held_ = 0;
}

// As in kernels, checksums that a device has not checked, or reports as wrong, are checked here
// (some devices report 0 as wrong).
bool is_damaged(rte_mbuf& buffer) {
  const uint64_t verdict = buffer.ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
  const bool good =
      verdict == RTE_MBUF_F_RX_L4_CKSUM_GOOD || verdict == RTE_MBUF_F_RX_L4_CKSUM_NONE;
  if (good) return false;
  return rte_pktmbuf_linearize(&buffer) != 0 || !has_right_udp_checksum(frame_of(buffer));
}

void DpdkIo::drop_damaged() {
  size_t kept = 0;
  for (rte_mbuf* const buffer : std::span(buffers_).first(held_)) {
    if (is_damaged(*buffer)) {
      rte_pktmbuf_free(buffer);
    } else {
      buffers_[kept++] = buffer;
    }
  }
  held_ = kept;
}

// Flattened: all calls per packet are inlined.
[[gnu::flatten]] size_t DpdkIo::receive(std::span<RxPacket> packets, Instant now) {
  release();
  const size_t most = std::min(packets.size(), kReceiveBurst);
  held_ = port_->receive(std::span(buffers_).first(most));
  if (port_->info().offloads_udp_checksums) drop_damaged();
  if (held_ == 0) poll_link(now, link_up_ ? kLinkUpInterval : kLinkDownInterval);
  size_t count = 0;
  for (size_t i = 0; i < held_; ++i) {
    if (read(*buffers_[i], i, packets[count], now)) ++count;
  }
  return count;
}

// False: the frame does not hold a datagram for us.
bool DpdkIo::read(rte_mbuf& buffer, size_t slot, RxPacket& packet, Instant now) {
  if (buffer.nb_segs > 1 && rte_pktmbuf_linearize(&buffer) != 0) return false;
  const auto frame = frame_of(buffer);
  FrameDatagram datagram;
  if (!known_.read(frame, datagram) && !read_unknown(frame, datagram, now)) return false;
  if (datagram.bytes.empty()) return false;
  sources_[slot] = datagram.source;
  // Constructed in place: an assignment would build a temporary and copy it.
  new (&packet) RxPacket{.bytes = datagram.bytes,
                         .source = &sources_[slot],
                         .ecn = datagram.ecn,
                         .ipv4_fragment = datagram.fragment};
  return true;
}

// As read(), without the fast path. Also answers neighbours' messages.
bool DpdkIo::read_unknown(std::span<const uint8_t> frame, FrameDatagram& datagram, Instant now) {
  const auto ethernet = frame::read_ethernet(frame);
  const auto found = ethernet ? read_datagram(*ethernet) : std::nullopt;
  if (!found) {
    const auto message = read_neighbor_message(frame);
    const auto answer = message ? neighbors_.receive(*message, now) : std::nullopt;
    if (answer) send_message(*answer);
    return false;
  }
  const Address& to = found->destination;
  if (to.port != local_.port || !same_ip(to, local_)) return false;
  datagram = *found;
  datagram.source.scope_id = local_.scope_id;
  known_.remember(frame, datagram);
  return true;
}

PacketIoCaps caps_of(const DpdkPort& port, const Address& local, uint32_t paths) {
  PacketIoCaps caps;
  caps.datagram_bytes =
      port.info().mtu - frame::kUdpBytes - (is_ipv4(local) ? frame::kIpv4Bytes : frame::kIpv6Bytes);
  caps.burst_bytes = 0;  // single packets cost no more, so flows are paced packet by packet
  caps.receive_bytes = port.info().receive_slots * caps.datagram_bytes / 2;
  caps.paths = paths;
  caps.line_rate = port.line_rate();
  // Copies within the host's memory need no checksum.
  caps.checks_payload = port.info().offloads_udp_checksums || port.info().driver->is_memory;
  caps.sees_ecn = true;
  caps.sees_ipv4_header = is_ipv4(local);
  caps.jitter = kHostJitter;
  caps.pause = kHostPause;
  return caps;
}

}  // namespace

Result<OpenedDpdk> open_dpdk(const DpdkConfig& config, const LogSink& log) {
  if (config.device.driver() == "net_memif") {
    return fail(ErrorCode::kInvalidArgument,
                "net_memif of DPDK 22.11 ends a process when its peer ends: use net_vhost in one "
                "process and net_virtio_user in the other");
  }
  if (config.device.driver() == "net_af_xdp") {
    return fail(ErrorCode::kInvalidArgument,
                "net_af_xdp of DPDK 22.11 occupies an interface's queue also when it is closed: "
                "use net_af_packet, or soft:raw:INTERFACE");
  }
  RETURN_IF_ERROR(start_eal(config.eal_arguments, config.device.is_pci(), log));
  ASSIGN_OR_RETURN(auto port, DpdkPort::open({.device = config.device,
                                              .transmit_buffers = TransmitBatch::kBuffers,
                                              .receive_burst = kReceiveBurst,
                                              .udp_checksums = config.udp_checksums},
                                             log));
  if (port->info().mtu < kNeededMtu) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the DPDK device '{}' has an MTU of {}: at least {} are needed",
                            config.device.name, port->info().mtu, kNeededMtu));
  }
  OpenedDpdk opened{.io = nullptr, .mac = port->info().mac, .interface = port->info().interface};
  const auto& kernels = port->info().kernel_address;
  Address local = config.device.address ? *config.device.address
                  : kernels             ? *kernels
                                        : link_local_address(opened.mac);
  if (config.device.gateway && is_ipv4(*config.device.gateway) != is_ipv4(local)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the gateway {} of the DPDK device '{}' cannot be reached from its "
                    "address {}: give both of one family",
                    ip_to_string(*config.device.gateway), config.device.name, ip_to_string(local)));
  }
  local.port = roce::kUdpPort;
  UdpSocket port_holder;
  if (kernels && *kernels == Address{.ip = local.ip, .scope_id = local.scope_id}) {
    if (!config.standard_port) local.port = 0;
    ASSIGN_OR_RETURN(port_holder, open_discarding_socket(local));
    local.port = bound_address(port_holder).port;
  }
  if (port->info().steered) {
    RETURN_IF_ERROR(port->steer(local));
  }
  const PacketIoCaps caps = caps_of(*port, local, config.paths);
  opened.io =
      std::make_unique<DpdkIo>(config, caps, local, std::move(port), std::move(port_holder));
  return opened;
}

}  // namespace pacecar
