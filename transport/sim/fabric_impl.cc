#include "transport/sim/fabric_impl.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "transport/base/prefetch.h"
#include "transport/sim/ecmp_hash.h"
#include "transport/sim/link_capture.h"

namespace pacecar {
namespace {

// The bytes of a link that packets use.
constexpr size_t kHotLinkBytes = 256;
// The bytes of a packet that its reader uses.
constexpr size_t kHeaderBytes = 128;

// Pause frames are no packets of hosts.
bool is_pause(const FabricPacket& packet) {
  return packet.kind == PacketKind::kPause || packet.kind == PacketKind::kResume;
}

// The most that can still arrive after a pause was sent: a round trip's worth of the cable, a
// packet that each end had just begun, and the one that exceeded the threshold.
Bytes headroom_of(const Cable& cable, const FabricConfig& config) {
  if (config.switches.pfc.headroom > 0) return config.switches.pfc.headroom;
  const Bytes largest = config.hosts.datagram_bytes + config.hosts.overhead_bytes;
  return cable.rate.bytes_in(cable.delay * 2) + 4 * largest;
}

}  // namespace

Fabric::Impl::Impl(EventLoop& loop_, const Topology& topology_, const FabricConfig& config_,
                   Routing routing_, uint64_t seed)
    : loop(loop_),
      config(config_),
      topology(topology_),
      hosts(topology.hosts),
      routing(std::move(routing_)),
      random(seed),
      store(config_.payload == PayloadMode::kBytes ? config_.hosts.datagram_bytes
                                                   : config_.header_bytes,
            config_.switches.telemetry),
      ecn(config_.switches.ecn),
      faults(*this),
      uplinks(topology.hosts),
      store_timer_(loop_.add_timer(*this, event(Event::kStoreRoom, 0))),
      in_routes_(topology.cables.size(), true),
      reroute_timer_(loop_.add_timer(*this, event(Event::kReroute, 0))) {
  links.reserve(2 * topology.cables.size());
  for (const Cable& cable : topology.cables) {
    add_link(cable, cable.a, cable.b);
    add_link(cable, cable.b, cable.a);
    failover_timers_.push_back(
        loop.add_timer(*this, event(Event::kFailover, static_cast<LinkId>(links.size() - 2))));
  }
  for (const PolicerConfig& policer : config.policers) {
    links[policer.link].policer = std::make_unique<Policer>(policer.rate, policer.burst);
  }
  for (uint32_t i = 0; i < topology.switches; ++i) {
    switches.push_back({SwitchBuffer(config.switches), random.next_u64()});
  }
  for (uint32_t process = 0; process < topology.all_processes(); ++process) {
    uint64_t bps = 0;
    for (const LinkId link : uplinks[topology.host_of(process)]) {
      bps += links[link].clock.rate().bps();
    }
    ports.emplace_back(*this, process, Rate::from_bps(bps));
  }
}

void Fabric::Impl::add_link(const Cable& cable, NodeId from, NodeId to) {
  const auto id = static_cast<LinkId>(links.size());
  FabricLink& link =
      links.emplace_back(cable.rate, cable.delay, from, to, config.switches.control_weight,
                         from < hosts ? topology.processes : 1);
  link.arrival_timer = loop.add_timer(*this, event(Event::kArrival, id));
  link.free_timer = loop.add_timer(*this, event(Event::kFree, id));
  link.ingress.headroom_limit = headroom_of(cable, config);
  if (from < hosts) uplinks[from].push_back(id);
}

void Fabric::Impl::on_event(Instant, uint32_t what) {
  const LinkId link = what >> kEventBits;
  switch (static_cast<Event>(what & ((1U << kEventBits) - 1))) {
    case Event::kArrival:
      return arrive(link);
    case Event::kFree:
      return transmitter_free(link);
    case Event::kFailover:
      return set_in_routes(link / 2, false);
    case Event::kReroute:
      return reroute();
    case Event::kStoreRoom:
      return notify_waiting_for_store();
  }
}

// Prefetches first the link, then the packet, then its next place: a host with its state, or the
// next link. Some events are between these steps, as each needs the result of the previous one.
void Fabric::Impl::prepare(uint32_t what, unsigned events_before) {
  const FabricLink& link = links[what >> kEventBits];
  const auto kind = static_cast<Event>(what & ((1U << kEventBits) - 1));
  constexpr unsigned kLink = EventSink::kEventsAhead;
  constexpr unsigned kPacket = kLink - 1;
  constexpr unsigned kBeyond = 3;
  if (events_before == kLink) return prefetch(&link, kHotLinkBytes);
  if (kind == Event::kFree) {
    if (events_before == kPacket) link.queue.prefetch_next();
    if (link.room_wanted) port_of(link.from, 0).prepare(events_before);
  } else if (kind == Event::kArrival && !link.flight.empty()) {
    const FabricPacket& packet = link.flight.front();
    if (events_before == kPacket) prefetch(packet);
    if (events_before == kBeyond && packet.next != nullptr) prefetch(*packet.next);
    if (link.to < hosts) {
      if (events_before == kBeyond) prefetch(packet.memory, kHeaderBytes);
      port_of(link.to, packet.destination_process).prepare(events_before);
    } else if (events_before == kBeyond) {
      if (const auto out = way_on(packet, link.to)) prefetch(&links[*out], kHotLinkBytes);
    }
  }
}

LinkId Fabric::Impl::choose_uplink(uint32_t host, uint32_t destination, uint64_t hash) const {
  const auto& own = uplinks[host];
  if (own.size() == 1) return own[0];
  const bool routed = destination < hosts && destination != host;
  const auto ways = routed ? routing.next_links(host, destination) : std::span<const LinkId>(own);
  return ways.empty() ? own[0] : ways[pick_one(mix_bits(hash), ways.size())];
}

void Fabric::Impl::watch_store(uint32_t process) {
  if (std::find(waiting_for_store_.begin(), waiting_for_store_.end(), process) ==
      waiting_for_store_.end()) {
    waiting_for_store_.push_back(process);
  }
}

void Fabric::Impl::notify_waiting_for_store() {
  for (const uint32_t process : std::exchange(waiting_for_store_, {})) ports[process].wake();
}

void Fabric::Impl::give_back(FabricPacket& packet) {
  store.give_back(packet);
  if (!waiting_for_store_.empty()) loop.arm(store_timer_, loop.now());
}

void Fabric::Impl::deliver(FabricPacket& packet) {
  ++counters.delivered;
  trace(TraceKind::kDelivered, packet);
}

void Fabric::Impl::drop(FabricPacket& packet, FabricDrop cause) {
  ++counters.dropped[static_cast<size_t>(cause)];
  trace(TraceKind::kDropped, packet, static_cast<uint64_t>(cause));
  give_back(packet);
}

std::span<uint8_t> Fabric::Impl::carried(const FabricPacket& packet) const {
  return {packet.memory, size_t{packet.header_bytes} +
                             (keeps_payload(packet) ? packet.payload_bytes : 0) +
                             packet.trailer_bytes};
}

void Fabric::Impl::trace(TraceKind kind, const FabricPacket& packet, uint64_t detail) {
  trace_hash.add(static_cast<uint64_t>(loop.now().ns()) << 4U | static_cast<uint64_t>(kind));
  trace_hash.add(packet.flow_hash ^ detail << 32U);
  trace_hash.add(uint64_t{packet.wire_bytes} << 8U | static_cast<uint64_t>(packet.ecn));
}

// Hashes only the bytes that identify queue pair and packet: later ones may be memory addresses,
// which differ from run to run.
void Fabric::Impl::trace_bytes(const FabricPacket& packet) {
  constexpr size_t kTransportHeader = 12;
  std::array<uint64_t, 2> head{};
  const auto bytes = carried(packet);
  std::memcpy(head.data(), bytes.data(), std::min(bytes.size(), kTransportHeader));
  trace_hash.add(head[0]);
  trace_hash.add(head[1]);
}

uint64_t Fabric::Impl::count_in_flight() const {
  uint64_t count = faults.delayed();
  for (const FabricLink& link : links) {
    count += link.queue.count() +
             link.flight.count_if([](const FabricPacket& packet) { return !is_pause(packet); });
  }
  for (const HostPort& port : ports) count += port.waiting();
  return count;
}

}  // namespace pacecar
