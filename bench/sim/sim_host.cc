#include "bench/sim/sim_host.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

enum Wake : uint32_t { kTimer, kPort, kTurn };

// No memory is there, and nothing reads or writes it.
constexpr uint64_t kPayloadAddress = uint64_t{1} << 44;
constexpr size_t kPayloadBytes = size_t{1} << 42;

// Regions of a host in addition to its flows and connections: for the payload and the messenger.
constexpr uint32_t kOwnRegions = 4;

uint32_t next_random(void* prng) {
  return static_cast<uint32_t>(static_cast<Prng*>(prng)->next_u64());
}

// The hosts' clocks differ at the beginning of the simulation.
Duration clock_offset(uint32_t host) {
  return Duration::from_ns(static_cast<int64_t>(Prng(host).below(1'000'000)));
}

// So long that no peer counts as dead: a run that cannot go on ends at its time limit.
Duration silence_limit(const RunSpec& spec) {
  return std::max(spec.time_limit * 100, Duration::from_s(10));
}

// The nominal rate of a host's NIC.
Rate line_rate(const RunSpec& spec, uint32_t host, Fabric& fabric) {
  return spec.transport.nominal_rate(fabric.port(host).caps().line_rate);
}

// What a flow sends in one turn.
uint32_t packets_per_turn(const TransportSpec& transport) {
  return static_cast<uint32_t>(transport.burst / transport.mtu);
}

AckPolicy spaced_acks(const TransportSpec& transport) {
  return {.bytes = transport.ack_bytes, .out_of_order_at_once = false, .idle = transport.base_rtt};
}

// Ideal hosts are never late, so a probe need not wait for them, and their round trip is known:
// eight of them are more than a full queue of five.
SoftNicConfig ideal_nic_config(const TransportSpec& transport) {
  return {
      .control_first = true,
      .ack = transport.ack_bytes == 0 ? AckPolicy{.every_packet = true} : spaced_acks(transport),
      .loss = {.initial_timeout = transport.base_rtt * 8, .min_probe = Duration()}};
}

// As an engine has it, without a search for the MTU, which the run knows.
SoftNicConfig real_nic_config(const TransportSpec& transport, const PacketIo& io) {
  Params params;
  params.security = Security::kOff;
  params.mtu = transport.mtu;
  SoftNicConfig nic = soft_nic_config(params, io);
  nic.searches_mtu = false;
  if (transport.ack_bytes > 0) nic.ack = spaced_acks(transport);
  return nic;
}

SoftNicConfig nic_config(const RunSpec& spec, const SimHostConfig& config, Fabric& fabric) {
  const TransportSpec& transport = spec.transport;
  const HostPort& io = fabric.port(config.number);
  SoftNicConfig nic =
      spec.hosts.ideal() ? ideal_nic_config(transport) : real_nic_config(transport, io);
  nic.address = io.local_address();
  nic.line_rate = line_rate(spec, config.number, fabric);
  nic.mtu = transport.mtu;
  nic.burst_bytes = transport.burst;
  nic.wire_overhead_bytes = spec.fabric.hosts.overhead_bytes;
  nic.paths = io.caps().paths;
  nic.path_policy = transport.path_policy;
  nic.flows = std::max(config.flows, 1U);
  nic.queue_pairs = std::max(2 * config.flows, 1U);
  nic.regions = config.flows + 2 * config.connections + kOwnRegions;
  nic.window_packets = config.window_packets;
  nic.completions = 512;  // a burst of the poll loop, and room
  nic.transmit_packets = packets_per_turn(transport);
  nic.full_checksum = false;
  nic.random_addresses = false;
  nic.sees_ecn = true;
  nic.loss.reordering = transport.reordering;
  nic.loss.packet_timeout = transport.timeout;
  nic.silence_limit = silence_limit(spec);
  return nic;
}

}  // namespace

Result<std::unique_ptr<SimHost>> SimHost::create(EventLoop& loop, Fabric& fabric,
                                                 const RunSpec& spec, const SimHostConfig& config,
                                                 Listener listener) {
  auto host =
      std::unique_ptr<SimHost>(new SimHost(loop, fabric, spec, config, std::move(listener)));
  const auto region = host->nic_.register_memory(reinterpret_cast<void*>(kPayloadAddress),
                                                 kPayloadBytes, Access::kRemoteWrite);
  PACECAR_CHECK(region.has_value());  // there is room for it
  host->payload_ = *region;
  const Rate rate = line_rate(spec, config.number, fabric);
  ASSIGN_OR_RETURN(
      host->messenger_,
      Messenger::create(
          host->nic_,
          {.identity = host->identity(),
           .congestion_control = config.congestion_control,
           .constants = config.congestion_control == spec.transport.congestion_control
                            ? spec.transport.constants
                            : std::vector<NamedValue>(),  // of another algorithm, which a job has
           .allocator = config.allocator,
           .line_rate = rate,
           .rate_max = spec.transport.rate_max,
           .weight = config.weight,
           .first_rate = spec.transport.first_rate_of(rate),
           .grid_origin = clock_offset(config.number / spec.topology.processes),
           .outgoing = host->member_ ? &host->member_->outgoing() : nullptr,
           .incoming = host->member_ ? &host->member_->incoming() : nullptr,
           .base_rtt = spec.transport.knows_base_rtt ? spec.transport.base_rtt : Duration(),
           .trimming = spec.fabric.switches.trimming,
           .oversubscription = spec.transport.oversubscription,
           .max_connections = std::max(config.connections, 1U),
           .silence_limit = silence_limit(spec),
           .keep_alive = silence_limit(spec) / 5,
           .first_flow_number = 0},
          loop.now()));
  host->poll_loop_.emplace(host->port_, *host->messenger_);
  if (config.shared != nullptr) config.shared->processes.push_back(host.get());
  fabric.port(config.number).set_listener(*host, kPort);
  return host;
}

SimHost::SimHost(EventLoop& loop, Fabric& fabric, const RunSpec& spec, const SimHostConfig& config,
                 Listener listener)
    : loop_(loop),
      io_(fabric.port(config.number)),
      listener_(std::move(listener)),
      number_(config.number),
      report_steps_(config.report_steps),
      timer_(loop.add_timer(*this, kTimer)),
      random_(config.seed),
      nic_(nic_config(spec, config, fabric), {next_random, &random_}, loop.now()),
      port_(io_, nic_, packets_per_turn(spec.transport), nullptr, config.received),
      shared_(config.shared),
      process_(uint64_t{config.number} + 1) {
  if (!spec.hosts.ideal()) {
    model_.emplace(spec.hosts, config.seed);
    turn_ = loop.add_timer(*this, kTurn);
  }
  if (shared_ == nullptr) return;
  member_ =
      std::make_unique<ShareMember>(shared_->table, process_, fmt::format("process {}", number_),
                                    line_rate(spec, number_, fabric));
}

NicIdentity SimHost::identity() const {
  NicIdentity identity{};
  for (size_t i = 0; i < sizeof number_; ++i) {
    identity[i] = static_cast<uint8_t>((number_ + 1) >> 8 * i);
  }
  return identity;
}

// At what another process of the host has done to the share table.
void SimHost::poll_share(Instant now) {
  if (!member_->outgoing().due(now) && !member_->incoming().due(now)) return;
  loop_.arm(timer_, std::min(loop_.deadline(timer_), now + SharedNic::kPoll));
}

void SimHost::on_event(Instant now, uint32_t what) {
  if (model_ && what != kTurn) {
    if (loop_.deadline(turn_) == Instant::never()) loop_.arm(turn_, model_->turn_for(now));
    return;
  }
  const uint64_t blocked = io_.blocked_sends();
  size_t packets = 0;
  for (size_t sent = 1;;) {
    const size_t received = poll_loop_->receive(now);
    if (received + sent == 0) break;
    sent = poll_loop_->advance(now);
    packets += received + sent;
    if (model_) break;  // time passes before the next turn
  }
  const Instant next = poll_loop_->next_deadline();
  // A full port notifies when it has room; any other due work is due a little later.
  const bool is_full = next <= now && io_.blocked_sends() != blocked;
  count_messages();
  if (model_) {
    const Instant free = model_->worked(now, packets, new_messages_);
    const bool more = packets > 0 || (next <= now && !is_full);
    loop_.arm(more ? turn_ : timer_, more ? free : is_full ? Instant::never() : next);
  } else {
    loop_.arm(timer_, next > now ? next : is_full ? Instant::never() : now + Duration::from_ns(1));
  }
  if (shared_ != nullptr) {
    for (SimHost* other : shared_->processes) {
      if (other != this) other->poll_share(now);
    }
  }
  if (report_steps_ || new_messages_ > 0) listener_(number_, now, new_messages_ > 0);
}

void SimHost::count_messages() {
  const MessengerCounters& counters = messenger_->counters();
  const uint64_t all = counters.messages_sent + counters.messages_received;
  new_messages_ = all - std::exchange(messages_, all);
}

}  // namespace pacecar
