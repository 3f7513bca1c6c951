#include "transport/engine/soft_port.h"

#include <algorithm>
#include <utility>

#include "transport/base/random_word.h"
#include "transport/engine/bootstrap/auth.h"
#include "transport/engine/clock.h"
#include "transport/message/control_words.h"
#include "transport/wire/address.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

// The nominal rate of a device that does not know its own, for each core.
constexpr Rate kDefaultLineRate = Rate::from_gbps(100);
constexpr Bytes kMaxDefaultMtu = 8192;
// A reader that polls memory while it is written takes this many bytes as complete when their end
// has arrived: a line of NCCL's LL128, or a CTS slot.
constexpr Bytes kLineBytes = 128;
static_assert(kLineBytes % sizeof(CtsSlot) == 0);
// Longer than a ping-pong's round trip between processes, so that acknowledgements do not delay it.
constexpr Duration kQuiet = Duration::from_us(10);
// How long acknowledgements wait for data to the same peer, if joining them saves datagrams: about
// as long as a small collective of eight ranks on two processors. A sender that needs an
// acknowledgement at once requests it.
constexpr Duration kJoinDelay = Duration::from_us(1500);
// Without a loss, an acknowledgement arrives before the probe.
static_assert(LossRecovery().min_probe + kJoinDelay < LossRecovery().min_timeout);
// The least number of packets per acknowledgement, if two bursts are fewer.
constexpr Bytes kPacketsPerAck = 4;

// Queue pairs of a process that shares its address. Its range of numbers has room for twice as many
// slots, and several generations of each.
constexpr uint32_t kProcessQueuePairs = 8192;
constexpr uint32_t kProcessReceiveQueues = 1024;

// The largest payload that fits the device's datagrams, in whole lines, so that none is split.
Bytes choose_mtu(const Params& params, const PacketIoCaps& caps) {
  const Bytes room = caps.datagram_bytes - wire::kDataHeaderBytes - trailer_bytes(params.security);
  const Bytes wanted = params.mtu != 0 ? params.mtu : kMaxDefaultMtu;
  return std::min(wanted, room) / kLineBytes * kLineBytes;
}

}  // namespace

SoftNicConfig soft_nic_config(const Params& params, const PacketIo& io, uint64_t cores) {
  const PacketIoCaps& caps = io.caps();
  const Bytes mtu = choose_mtu(params, caps);
  const Bytes packet = mtu + wire::kDataHeaderBytes + trailer_bytes(params.security);
  const Bytes packets_per_burst = std::max<Bytes>(1, caps.burst_bytes / packet);
  const bool full = params.integrity == Integrity::kFull ||
                    (params.integrity == Integrity::kAuto && !caps.checks_payload);
  const bool joins = packets_per_burst > 1;
  const LossRecovery loss;
  return SoftNicConfig{
      .address = io.local_address(),
      .line_rate = params.line_rate.bps() != 0 ? params.line_rate
                   : caps.line_rate.bps() != 0 ? caps.line_rate
                                               : Rate::from_bps(kDefaultLineRate.bps() * cores),
      .mtu = mtu,
      .burst_bytes = packets_per_burst * mtu,
      .receive_bytes = caps.receive_bytes,
      .jitter = caps.jitter,
      .pause = caps.pause,
      .searches_mtu = true,
      .paths = caps.paths,
      .path_policy = PathPolicy::kBalanced,
      .flows = params.max_flows,
      .queue_pairs = params.max_flows * 2,
      .regions = params.max_regions,
      .window_packets = params.window_packets,
      .full_checksum = full,
      .security = params.security,
      .sees_ecn = caps.sees_ecn,
      .joins_packets = joins,
      .wire_mode = params.wire,
      .source_ports = source_ports(io),
      .knows_ip_header = caps.sees_ipv4_header || !is_ipv4(io.local_address()),
      .identifies_datagrams = caps.identifies_datagrams,
      .ack = {.bytes = mtu * std::max(packets_per_burst * 2, kPacketsPerAck),
              .delay = joins ? kJoinDelay : AckPolicy().delay,
              .quiet = joins ? kJoinDelay : kQuiet},
      .loss = {.min_probe = loss.min_probe + (joins ? kJoinDelay : Duration())},
      // With the keep-alive's interval (a fifth at most) this stays below PACECAR_TIMEOUT.
      .silence_limit = params.timeout * 6 / 10,
  };
}

namespace {

uint32_t random_word(void*) { return random_value<uint32_t>(); }

struct OwnedParts {
  std::unique_ptr<PacketIo> owned_io;
  SoftNic owned_nic;
};

// OwnedParts is the first base class, as the SoftPort refers to its members.
class OwningSoftPort final : private OwnedParts, public SoftPort {
 public:
  OwningSoftPort(const SoftNicConfig& config, std::unique_ptr<PacketIo> io, Instant now,
                 const std::optional<Address>& bootstrap = std::nullopt)
      : OwnedParts{std::move(io), SoftNic(config, {random_word, nullptr}, now)},
        SoftPort(*owned_io, owned_nic, kMaxTransmit, clock_now),
        bootstrap_(bootstrap) {}

  const Address& address() const override { return bootstrap_ ? *bootstrap_ : SoftPort::address(); }

 private:
  const std::optional<Address> bootstrap_;
};

}  // namespace

size_t SoftPort::receive(Instant now) {
  const size_t received = io_.receive(received_, now);
  const Instant arrived = received > 0 && clock_ != nullptr ? clock_() : now;
  nic_.on_packets(arrived, received_.first(received));
  return received;
}

size_t SoftPort::transmit(Instant now) {
  // The remaining packets may refer to deregistered memory.
  if (nic_.invalidations() != invalidations_) {
    invalidations_ = nic_.invalidations();
    outgoing_begin_ = outgoing_end_;
  }
  if (outgoing_begin_ == outgoing_end_) {
    outgoing_begin_ = 0;
    outgoing_end_ = nic_.poll_transmit(now, outgoing_);
  }
  const auto left = std::span(outgoing_).subspan(outgoing_begin_, outgoing_end_ - outgoing_begin_);
  if (left.empty()) return 0;
  const size_t sent = io_.send(left, now);
  outgoing_begin_ += sent;
  if (const Refusals refusals = io_.refusals(); refusals.count != refused_) {
    nic_.on_refused(refusals.count - std::exchange(refused_, refusals.count), refusals.unreadable);
  }
  return sent;
}

Instant SoftPort::next_deadline() const {
  if (outgoing_begin_ != outgoing_end_) return Instant();
  return nic_.next_deadline();
}

std::unique_ptr<SoftPort> make_soft_port(const Params& params, std::unique_ptr<PacketIo> io,
                                         Instant now, const std::optional<Address>& bootstrap) {
  const SoftNicConfig config = soft_nic_config(params, *io);
  return std::make_unique<OwningSoftPort>(config, std::move(io), now, bootstrap);
}

std::unique_ptr<SoftPort> make_process_port(const Params& params, std::unique_ptr<PacketIo> io,
                                            uint32_t slot, Instant now) {
  SoftNicConfig config = soft_nic_config(params, *io);
  config.wire_mode = WireMode::kRoce;
  config.port_slot = slot;
  config.queue_pairs = std::min(config.queue_pairs, kProcessQueuePairs);
  config.receive_queues = kProcessReceiveQueues;
  return std::make_unique<OwningSoftPort>(config, std::move(io), now);
}

std::vector<std::unique_ptr<SoftPort>> make_soft_ports(const Params& params,
                                                       std::vector<std::unique_ptr<PacketIo>> ios,
                                                       Instant now) {
  const auto seed = random_value<Secret>();
  std::vector<std::unique_ptr<SoftPort>> ports;
  for (auto& io : ios) {
    SoftNicConfig config = soft_nic_config(params, *io, ios.size());
    config.key_seed = seed;
    ports.push_back(std::make_unique<OwningSoftPort>(config, std::move(io), now));
  }
  return ports;
}

}  // namespace pacecar
