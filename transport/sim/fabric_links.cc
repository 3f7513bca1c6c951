// On cables and in switches: transmitters, arrivals, failures; routes, admission, marks, trimming.
#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "transport/sim/fabric.h"
#include "transport/sim/routing.h"
#include "transport/sim/topology.h"

namespace pacecar {
namespace {

constexpr uint32_t kPauseFrameBytes = 84;  // 64, with preamble and gap

}  // namespace

void Fabric::send(LinkId id, FabricPacket& packet) {
  FabricLink& link = links_[id];
  ++counters_.sent;
  trace_.add(TraceHash::Event::kSent, loop_.now(), packet);
  trace_.add_head(carried(packet));
  if (!link.up) return drop(packet, FabricDrop::kLinkDown);
  offer(id, packet);
}

void Fabric::offer(LinkId id, FabricPacket& packet) {
  FabricLink& link = links_[id];
  if (!link.clock.busy(loop_.now())) finish_service(link);
  if (packet.is_data()) {
    const Bytes queue = link.data_bytes(loop_.now()) + packet.wire_bytes;
    link.stats.queue_max_bytes = std::max(link.stats.queue_max_bytes, queue);
    if (link.from >= hosts_ && config_.switches.ecn.marks_at(EcnConfig::When::kEnqueue))
      mark(packet, link, queue);
  }
  if (can_start(link, packet)) return start(id, packet);
  const bool waiting = link.waiting();
  link.queue.push(packet);
  start_or_wait(id, waiting);
}

void Fabric::start_or_wait(LinkId id, bool was_waiting) {
  const FabricLink& link = links_[id];
  if (!link.clock.busy(loop_.now())) {
    start_next(id);
  } else if (!was_waiting) {
    loop_.arm(link.free_timer, link.clock.free_at());
  }
}

void Fabric::start_next(LinkId id) {
  FabricLink& link = links_[id];
  finish_service(link);
  if (link.pause_due != PacketKind::kData) {
    FabricPacket& frame = store_.take(0);
    frame.kind = std::exchange(link.pause_due, PacketKind::kData);
    frame.wire_bytes = kPauseFrameBytes;
    counters_.pauses += frame.kind == PacketKind::kPause ? 1 : 0;
    start(id, frame);
  } else if (FabricPacket* packet = link.queue.pop(link.paused)) {
    if (link.from >= hosts_) leave_buffer(*packet, link.from);
    start(id, *packet);
  } else {
    return;
  }
  if (link.waiting() || link.room_wanted) loop_.arm(link.free_timer, link.clock.free_at());
}

void Fabric::start(LinkId id, FabricPacket& packet) {
  FabricLink& link = links_[id];
  finish_service(link);
  packet.arrival = link.clock.send(packet.wire_bytes, loop_.now()) + link.delay;
  link.stats.sent_bytes += packet.wire_bytes;
  ++link.stats.sent_packets;
  const bool first = link.flight.empty();
  link.flight.push(packet);
  link.in_service = &packet;
  link.in_service_data = packet.is_data() ? packet.wire_bytes : 0;
  if (first) loop_.arm(link.arrival_timer, packet.arrival);
}

// The packet in service has left; called when that matters. If none waited then, none waits now.
void Fabric::finish_service(FabricLink& link) {
  FabricPacket* packet = std::exchange(link.in_service, nullptr);
  if (packet == nullptr || link.in_service_data == 0 || link.from < hosts_) return;
  const Bytes behind = link.queue.data().bytes();
  if (config_.switches.ecn.marks_at(EcnConfig::When::kDequeue)) mark(*packet, link, behind);
  if (!config_.switches.telemetry || packet->hops == kMaxTelemetryHops) return;
  store_.telemetry(*packet)[packet->hops++] = {
      .time_ns = static_cast<uint32_t>(link.clock.free_at().ns()),
      .sent_bytes = static_cast<uint32_t>(link.stats.sent_bytes),
      .queue_bytes = static_cast<uint32_t>(behind),
      .rate_mbps = static_cast<uint32_t>(link.clock.rate().bps() / 1'000'000)};
}

void Fabric::transmitter_free(LinkId id) {
  FabricLink& link = links_[id];
  if (link.clock.busy(loop_.now())) return loop_.arm(link.free_timer, link.clock.free_at());
  start_next(id);
  if (!std::exchange(link.room_wanted, false)) return;
  for (uint32_t i = 0; i < topology_.processes; ++i) port_of(link.from, i).link_is_free(id);
}

void Fabric::watch_room(LinkId id) {
  FabricLink& link = links_[id];
  link.room_wanted = true;
  if (link.clock.busy(loop_.now())) loop_.arm(link.free_timer, link.clock.free_at());
}

void Fabric::arrive(LinkId id) {
  FabricLink& link = links_[id];
  FabricPacket& packet = link.flight.pop();
  if (&packet == link.in_service) finish_service(link);
  if (!link.flight.empty()) loop_.arm(link.arrival_timer, link.flight.front().arrival);
  if (packet.is_pause()) {
    on_pause(id ^ 1U, packet.kind);
    return give_back(packet);
  }
  if (link.loss > 0 && random_.chance(link.loss)) {
    ++link.stats.dropped;
    return drop(packet, FabricDrop::kLoss);
  }
  if (link.policer && !link.policer->passes(packet.wire_bytes, loop_.now())) {
    ++link.stats.dropped;
    return drop(packet, FabricDrop::kPolicer);
  }
  if (link.capture) record(*link.capture, packet);
  packet.came_by = id;
  trace_.add(static_cast<uint64_t>(loop_.now().ns()) << 24U ^ id);
  if (link.to < hosts_) {
    port_of(link.to, packet.destination_process).arrive(packet);
  } else if (link.from < hosts_ && faults_.active()) {
    faults_.pass(packet);
  } else {
    enter_switch(packet);
  }
}

void Fabric::record(PcapWriter& capture, const FabricPacket& packet) const {
  const std::span header(packet.memory, packet.header_bytes);
  const uint8_t* behind = packet.memory + packet.header_bytes;
  const bool kept = keeps_payload(packet);
  const std::span payload(kept ? behind : zeros_.data(), packet.payload_bytes);
  const std::span trailer(kept ? behind + packet.payload_bytes : behind, packet.trailer_bytes);
  const std::array<std::span<const uint8_t>, 3> parts = {header, payload, trailer};
  capture.write(loop_.now(),
                {process_address(sender_of(packet), packet.path),
                 process_address(receiver_of(packet), 0), packet.ecn},
                parts);
}

void Fabric::set_cable_up(uint32_t cable, bool up) {
  for (const LinkId id : {2 * cable, 2 * cable + 1}) {
    if (links_[id].up && !up) cut(id);
    links_[id].up = up;
  }
  const EventLoop::TimerId timer = failover_timers_[cable];
  if (up) {
    loop_.cancel(timer);
    set_in_routes(cable, true);
  } else if (loop_.deadline(timer) == Instant::never() && in_routes_[cable]) {
    loop_.arm(timer, loop_.now() + config_.failover);
  }
}

void Fabric::set_in_routes(uint32_t cable, bool in_routes) {
  if (in_routes_[cable] == in_routes) return;
  in_routes_[cable] = in_routes;
  loop_.arm(reroute_timer_, loop_.now());  // once for all that happens now
}

// Packets on the cable and in the queue before it are lost, and pauses end.
void Fabric::cut(LinkId id) {
  FabricLink& link = links_[id];
  link.in_service = nullptr;
  loop_.cancel(link.arrival_timer);
  while (!link.flight.empty()) {
    FabricPacket& packet = link.flight.pop();
    packet.is_pause() ? give_back(packet) : drop(packet, FabricDrop::kLinkDown);
  }
  while (FabricPacket* packet = link.queue.pop(false)) {
    if (link.from >= hosts_) leave_buffer(*packet, link.from);
    ++link.stats.dropped;
    drop(*packet, FabricDrop::kLinkDown);
  }
  set_paused(link, false);
  link.pause_due = PacketKind::kData;
  link.ingress.pausing = false;
  // The host before it, if it waits, has room now.
  if (link.room_wanted) loop_.arm(link.free_timer, std::max(loop_.now(), link.clock.free_at()));
}

void Fabric::set_paused(FabricLink& link, bool paused) {
  if (paused == link.paused) return;
  link.paused = paused;
  if (paused) {
    link.paused_since = loop_.now();
  } else {
    link.stats.paused = link.stats.paused + (loop_.now() - link.paused_since);
  }
}

void Fabric::on_pause(LinkId id, PacketKind kind) {
  FabricLink& link = links_[id];
  set_paused(link, kind == PacketKind::kPause);
  if (!link.clock.busy(loop_.now())) start_next(id);
}

void Fabric::send_pause(LinkId from_sender, PacketKind kind) {
  links_[from_sender].ingress.pausing = kind == PacketKind::kPause;
  const LinkId id = from_sender ^ 1U;
  FabricLink& link = links_[id];
  if (!link.up) return;
  const bool waiting = link.waiting();
  link.pause_due = kind;
  start_or_wait(id, waiting);
}

void Fabric::enter_switch(FabricPacket& packet) {
  const NodeId at = links_[packet.came_by].to;
  if (packet.destination >= hosts_) return drop(packet, FabricDrop::kNoRoute);
  // Without a usable link, a link failed: an intact topology has a route to every host.
  const auto links = routing_.next_links(at, packet.destination);
  if (links.empty()) return drop(packet, FabricDrop::kLinkDown);
  const LinkId out = pick_link(links, packet.flow_hash ^ switches_[at - hosts_].salt);
  if (!links_[out].up) return drop(packet, FabricDrop::kLinkDown);
  packet.is_data() ? forward_data(packet, out) : forward_control(packet, out);
}

void Fabric::forward_data(FabricPacket& packet, LinkId out) {
  FabricLink& link = links_[out];
  // The output is idle: no buffering, so no admission check.
  if (can_start(link, packet)) return offer(out, packet);
  const Bytes limit = config_.switches.queue_bytes;
  const Bytes size = packet.wire_bytes;
  SwitchBuffer& buffer = switches_[link.from - hosts_].buffer;
  IngressShare& ingress = links_[packet.came_by].ingress;
  const bool fits = limit == 0 || link.data_bytes(loop_.now()) + size <= limit;
  if (!fits || !buffer.admit_data(ingress, size)) return overflow(packet, out);
  const LinkId came_by = packet.came_by;
  offer(out, packet);
  if (buffer.should_pause(ingress)) send_pause(came_by, PacketKind::kPause);
}

void Fabric::forward_control(FabricPacket& packet, LinkId out) {
  FabricLink& link = links_[out];
  if (can_start(link, packet)) return offer(out, packet);
  const SwitchConfig& limits = config_.switches;
  const Bytes limit =
      limits.control_queue_bytes > 0 ? limits.control_queue_bytes : limits.queue_bytes;
  const Bytes size = packet.wire_bytes;
  const bool fits = limit == 0 || link.queue.control().bytes() + size <= limit;
  if (!fits || !switches_[link.from - hosts_].buffer.admit_control(size)) {
    ++link.stats.dropped;
    return drop(packet, FabricDrop::kQueueFull);
  }
  offer(out, packet);
}

// The queue or the buffer is full. The arriving data packet is dropped, or trimmed, or it replaces
// the last queued packet, which is trimmed.
void Fabric::overflow(FabricPacket& packet, LinkId out) {
  FabricLink& link = links_[out];
  if (!config_.switches.trimming || packet.whole) {
    ++link.stats.dropped;
    return drop(packet, FabricDrop::kQueueFull);
  }
  const bool exchange = config_.switches.trim_tail_at_random && !link.queue.data().empty() &&
                        !link.queue.data().last().whole &&
                        link.queue.data().last().wire_bytes >= packet.wire_bytes &&
                        random_.chance(0.5);
  if (exchange) {
    SwitchBuffer& buffer = switches_[link.from - hosts_].buffer;
    buffer.release_control(link.queue.data().last().wire_bytes);
    buffer.admit_control(packet.wire_bytes);
    if (config_.switches.ecn.marks_at(EcnConfig::When::kEnqueue))
      mark(packet, link, link.data_bytes(loop_.now()));
    link.queue.exchange_last_data(packet);
  }
  packet.kind = link.to < hosts_ ? PacketKind::kTrimmed : PacketKind::kTrimmedInCore;
  packet.payload_bytes = 0;
  packet.trailer_bytes = 0;
  packet.wire_bytes = static_cast<uint32_t>(config_.switches.trimmed_bytes);
  ++counters_.trimmed;
  ++link.stats.trimmed;
  forward_control(packet, out);
}

void Fabric::mark(FabricPacket& packet, FabricLink& link, Bytes queue_bytes) {
  if (link.to < hosts_ && !config_.switches.ecn.host_links) return;
  if (packet.ecn == Ecn::kCongestion || packet.ecn == Ecn::kNotCapable) return;
  if (!config_.switches.ecn.marks(queue_bytes, random_)) return;
  packet.ecn = Ecn::kCongestion;
  ++counters_.marked;
  ++link.stats.marked;
}

void Fabric::leave_buffer(const FabricPacket& packet, NodeId at) {
  SwitchBuffer& buffer = switches_[at - hosts_].buffer;
  if (!packet.is_data()) return buffer.release_control(packet.wire_bytes);
  IngressShare& ingress = links_[packet.came_by].ingress;
  buffer.release_data(ingress, packet.wire_bytes);
  if (buffer.should_resume(ingress)) send_pause(packet.came_by, PacketKind::kResume);
}

}  // namespace pacecar
