// Packets in switches: routes, admission, marks, trimming.

#include "transport/sim/fabric.h"
#include "transport/sim/routing.h"

namespace pacecar {

void Fabric::enter_switch(FabricPacket& packet) {
  const NodeId at = links_[packet.came_by].to;
  if (packet.destination >= hosts_) return drop(packet, FabricDrop::kNoRoute);
  const auto out = way_on(packet, at);
  // Without a usable link, a link failed: an intact topology has a route to every host.
  if (!out || !links_[*out].up) return drop(packet, FabricDrop::kLinkDown);
  if (packet.is_data()) {
    forward_data(packet, *out);
  } else {
    forward_control(packet, *out);
  }
}

std::optional<LinkId> Fabric::way_on(const FabricPacket& packet, NodeId at) const {
  if (packet.destination >= hosts_) return std::nullopt;
  const auto ways = routing_.next_links(at, packet.destination);
  if (ways.empty()) return std::nullopt;
  const uint64_t hash = packet.flow_hash ^ switches_[at - hosts_].salt;
  return ways.size() == 1 ? ways[0] : ways[pick_one(mix_bits(hash), ways.size())];
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
