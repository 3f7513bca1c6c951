#include "transport/sim/fabric.h"

#include <algorithm>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// The most that can still arrive after a pause was sent: a round trip's worth of the cable, a
// packet that each end had just begun, and the one that exceeded the threshold.
Bytes headroom_of(const Cable& cable, const FabricConfig& config) {
  if (config.switches.pfc.headroom > 0) return config.switches.pfc.headroom;
  return cable.rate.bytes_in(cable.delay * 2) + 4 * config.hosts.largest_packet();
}

}  // namespace

Result<std::unique_ptr<Fabric>> Fabric::create(EventLoop& loop, const Topology& topology,
                                               const FabricConfig& config, uint64_t seed) {
  RETURN_IF_ERROR(check_fabric_config(config, topology));
  ASSIGN_OR_RETURN(auto routing, make_routing(topology));
  return std::unique_ptr<Fabric>(new Fabric(loop, topology, config, std::move(routing), seed));
}

Fabric::Fabric(EventLoop& loop, const Topology& topology, const FabricConfig& config,
               Routing routing, uint64_t seed)
    : loop_(loop),
      config_(config),
      topology_(topology),
      hosts_(topology.hosts),
      routing_(std::move(routing)),
      random_(seed),
      store_(
          config.payload == PayloadMode::kBytes ? config.hosts.datagram_bytes : config.header_bytes,
          config.switches.telemetry),
      faults_(*this),
      uplinks_(topology.hosts),
      store_timer_(loop_.add_timer(*this, event(Event::kStoreRoom, 0))),
      in_routes_(topology_.cables.size(), true),
      reroute_timer_(loop_.add_timer(*this, event(Event::kReroute, 0))) {
  links_.reserve(2 * topology_.cables.size());
  for (const Cable& cable : topology_.cables) {
    add_link(cable, cable.a, cable.b);
    add_link(cable, cable.b, cable.a);
    failover_timers_.push_back(
        loop_.add_timer(*this, event(Event::kFailover, static_cast<LinkId>(links_.size() - 2))));
  }
  for (const PolicerConfig& policer : config_.policers) {
    links_[policer.link].policer = std::make_unique<Policer>(policer.rate, policer.burst);
  }
  for (uint32_t i = 0; i < topology_.switches; ++i) {
    switches_.push_back({SwitchBuffer(config_.switches), random_.next_u64()});
  }
  for (uint32_t process = 0; process < topology_.all_processes(); ++process) {
    uint64_t bps = 0;
    for (const LinkId link : uplinks_[topology_.host_of(process)]) {
      bps += links_[link].clock.rate().bps();
    }
    ports_.emplace_back(*this, process, Rate::from_bps(bps));
  }
}

void Fabric::add_link(const Cable& cable, NodeId from, NodeId to) {
  const auto id = static_cast<LinkId>(links_.size());
  const Rate sends = from < hosts_ ? config_.hosts.send_rate : Rate();
  FabricLink& link =
      links_.emplace_back(sends > Rate() ? sends : cable.rate, cable.delay, from, to,
                          config_.switches.control_weight, from < hosts_ ? topology_.processes : 1);
  link.arrival_timer = loop_.add_timer(*this, event(Event::kArrival, id));
  link.free_timer = loop_.add_timer(*this, event(Event::kFree, id));
  link.ingress.headroom_limit = headroom_of(cable, config_);
  if (from < hosts_) uplinks_[from].push_back(id);
}

void Fabric::on_event(Instant, uint32_t what) {
  const LinkId link = what >> kEventBits;
  switch (static_cast<Event>(what & ((1U << kEventBits) - 1))) {
    case Event::kArrival: return arrive(link);
    case Event::kFree: return transmitter_free(link);
    case Event::kFailover: return set_in_routes(link / 2, false);
    case Event::kReroute: return reroute();
    case Event::kStoreRoom: return notify_waiting_for_store();
  }
}

LinkId Fabric::choose_uplink(uint32_t host, uint32_t destination, uint64_t hash) const {
  const std::span<const LinkId> own = uplinks_[host];
  const bool routed = destination < hosts_ && destination != host;
  const auto links = routed ? routing_.next_links(host, destination) : own;
  return pick_link(links.empty() ? own.first(1) : links, hash);
}

void Fabric::watch_store(uint32_t process) {
  if (std::ranges::find(waiting_for_store_, process) == waiting_for_store_.end()) {
    waiting_for_store_.push_back(process);
  }
}

void Fabric::notify_waiting_for_store() {
  for (const uint32_t process : std::exchange(waiting_for_store_, {})) ports_[process].wake();
}

void Fabric::give_back(FabricPacket& packet) {
  store_.give_back(packet);
  if (!waiting_for_store_.empty()) loop_.arm(store_timer_, loop_.now());
}

void Fabric::deliver(FabricPacket& packet) {
  ++counters_.delivered;
  trace_.add(TraceHash::Event::kDelivered, loop_.now(), packet);
}

void Fabric::drop(FabricPacket& packet, FabricDrop cause) {
  ++counters_.dropped[static_cast<size_t>(cause)];
  trace_.add(TraceHash::Event::kDropped, loop_.now(), packet, static_cast<uint64_t>(cause));
  give_back(packet);
}

std::span<uint8_t> Fabric::carried(const FabricPacket& packet) const {
  return {packet.memory, size_t{packet.header_bytes} +
                             (keeps_payload(packet) ? packet.payload_bytes : 0) +
                             packet.trailer_bytes};
}

LinkStats Fabric::link_stats(LinkId id) const {
  const FabricLink& link = links_[id];
  const Instant now = loop_.now();
  LinkStats stats = link.stats;
  stats.queue_bytes = link.data_bytes(now);
  if (link.paused) stats.paused = stats.paused + (now - link.paused_since);
  return stats;
}

void Fabric::reset_counters() {
  PACECAR_CHECK(counters().in_flight == 0);
  counters_ = {};
  for (FabricLink& link : links_) link.stats = {};
}

Bytes Fabric::switch_buffer_max() const {
  Bytes most = 0;
  for (const Switch& node : switches_) most = std::max(most, node.buffer.max_bytes());
  return most;
}

Result<void> Fabric::capture(LinkId link, const std::string& path) {
  ASSIGN_OR_RETURN(auto writer, PcapWriter::create(path));
  links_[link].capture = std::make_unique<PcapWriter>(std::move(writer));
  zeros_.resize(config_.hosts.datagram_bytes);
  return {};
}

Result<void> Fabric::close_captures() {
  for (const FabricLink& link : links_) {
    if (link.capture) RETURN_IF_ERROR(link.capture->close());
  }
  return {};
}

// Counts packets in flight queue by queue, cable by cable, inbox by inbox.
FabricCounters Fabric::counters() const {
  FabricCounters counters = counters_;
  counters.in_flight = faults_.delayed();
  for (const FabricLink& link : links_) {
    counters.in_flight += link.queue.count() + link.flight.count_if([](const FabricPacket& packet) {
      return !packet.is_pause();
    });
  }
  for (const HostPort& port : ports_) counters.in_flight += port.waiting();
  return counters;
}

}  // namespace pacecar
