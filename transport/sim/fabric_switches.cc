// Packets in switches: routes, admission, marks, trimming.

#include "transport/sim/ecmp_hash.h"
#include "transport/sim/fabric_impl.h"

namespace pacecar {

void Fabric::Impl::enter_switch(FabricPacket& packet) {
  const NodeId at = links[packet.came_by].to;
  if (packet.destination >= hosts) return drop(packet, FabricDrop::kNoRoute);
  const auto out = way_on(packet, at);
  // Without a usable link, a link failed: an intact topology has a route to every host.
  if (!out || !links[*out].up) return drop(packet, FabricDrop::kLinkDown);
  if (packet.is_data()) {
    forward_data(packet, *out);
  } else {
    forward_control(packet, *out);
  }
}

std::optional<LinkId> Fabric::Impl::way_on(const FabricPacket& packet, NodeId at) const {
  if (packet.destination >= hosts) return std::nullopt;
  const auto ways = routing.next_links(at, packet.destination);
  if (ways.empty()) return std::nullopt;
  const uint64_t hash = packet.flow_hash ^ switches[at - hosts].salt;
  return ways.size() == 1 ? ways[0] : ways[pick_one(mix_bits(hash), ways.size())];
}

void Fabric::Impl::forward_data(FabricPacket& packet, LinkId out) {
  FabricLink& link = links[out];
  // The output is idle: no buffering, so no admission check.
  if (can_start(link, packet)) return offer(out, packet);
  const Bytes limit = config.switches.queue_bytes;
  const Bytes size = packet.wire_bytes;
  SwitchBuffer& buffer = switches[link.from - hosts].buffer;
  IngressShare& ingress = links[packet.came_by].ingress;
  const bool fits = limit == 0 || link.data_bytes(loop.now()) + size <= limit;
  if (!fits || !buffer.admit_data(ingress, size)) return overflow(packet, out);
  const LinkId came_by = packet.came_by;
  offer(out, packet);
  if (buffer.should_pause(ingress)) send_pause(came_by, PacketKind::kPause);
}

void Fabric::Impl::forward_control(FabricPacket& packet, LinkId out) {
  FabricLink& link = links[out];
  if (can_start(link, packet)) return offer(out, packet);
  const SwitchConfig& config_ = config.switches;
  const Bytes limit =
      config_.control_queue_bytes > 0 ? config_.control_queue_bytes : config_.queue_bytes;
  const Bytes size = packet.wire_bytes;
  const bool fits = limit == 0 || link.queue.control().bytes() + size <= limit;
  if (!fits || !switches[link.from - hosts].buffer.admit_control(size)) {
    ++link.stats.dropped;
    return drop(packet, FabricDrop::kQueueFull);
  }
  offer(out, packet);
}

// The queue or the buffer is full. The arriving data packet is dropped, or trimmed, or it replaces
// the last queued packet, which is trimmed.
void Fabric::Impl::overflow(FabricPacket& packet, LinkId out) {
  FabricLink& link = links[out];
  if (!config.switches.trimming || packet.whole) {
    ++link.stats.dropped;
    return drop(packet, FabricDrop::kQueueFull);
  }
  const bool exchange = config.switches.trim_tail_at_random && !link.queue.data().empty() &&
                        !link.queue.data().last().whole &&
                        link.queue.data().last().wire_bytes >= packet.wire_bytes &&
                        random.chance(0.5);
  if (exchange) {
    SwitchBuffer& buffer = switches[link.from - hosts].buffer;
    buffer.release_control(link.queue.data().last().wire_bytes);
    buffer.admit_control(packet.wire_bytes);
    if (ecn.on_enqueue()) mark(packet, link, link.data_bytes(loop.now()));
    link.queue.exchange_last_data(packet);
  }
  packet.kind = link.to < hosts ? PacketKind::kTrimmed : PacketKind::kTrimmedInCore;
  packet.payload_bytes = 0;
  packet.trailer_bytes = 0;
  packet.wire_bytes = static_cast<uint32_t>(config.switches.trimmed_bytes);
  ++counters.trimmed;
  ++link.stats.trimmed;
  forward_control(packet, out);
}

void Fabric::Impl::mark(FabricPacket& packet, FabricLink& link, Bytes queue_bytes) {
  if (link.to < hosts && !config.switches.ecn.host_links) return;
  if (packet.ecn == Ecn::kCongestion || packet.ecn == Ecn::kNotCapable) return;
  if (!ecn.marks(queue_bytes, random)) return;
  packet.ecn = Ecn::kCongestion;
  ++counters.marked;
  ++link.stats.marked;
}

void Fabric::Impl::leave_buffer(const FabricPacket& packet, NodeId at) {
  SwitchBuffer& buffer = switches[at - hosts].buffer;
  if (!packet.is_data()) return buffer.release_control(packet.wire_bytes);
  IngressShare& ingress = links[packet.came_by].ingress;
  buffer.release_data(ingress, packet.wire_bytes);
  if (buffer.should_resume(ingress)) send_pause(packet.came_by, PacketKind::kResume);
}

}  // namespace pacecar
