#include "transport/sim/packet_faults.h"

#include <algorithm>

#include "transport/sim/fabric.h"

namespace pacecar {

PacketFaults::PacketFaults(Fabric& fabric)
    : fabric_(fabric),
      late_timer_(fabric.loop_.add_timer(*this, kLatePacket)),
      stall_timer_(fabric.loop_.add_timer(*this, kStallEnd)) {}

void PacketFaults::set(const SimFaults& faults) {
  const auto stalls = std::move(faults_.stalls);
  faults_ = faults;
  if (faults.reordering > 0) late_.reserve(fabric_.config_.packets);
  active_ = faults.loss > 0 || faults.duplication > 0 || faults.reordering > 0 ||
            faults.corruption > 0 || !faults.partitions.empty() || !faults.word_losses.empty();
  for (const SimStall& stall : stalls) {  // the new faults may end it early
    if (!frozen(static_cast<uint32_t>(stall.port))) fabric_.ports_[stall.port].wake();
  }
  arm_stall_timer();
}

bool PacketFaults::frozen(uint32_t process) const {
  return !faults_.stalls.empty() && std::ranges::any_of(faults_.stalls, [&](const SimStall& stall) {
    return stall.port == process && stall.window.contains(fabric_.loop_.now());
  });
}

void PacketFaults::arm_stall_timer() {
  Instant next = Instant::never();
  for (const SimStall& stall : faults_.stalls) {
    if (stall.window.until > fabric_.loop_.now()) next = std::min(next, stall.window.until);
  }
  fabric_.loop_.arm(stall_timer_, next);
}

bool PacketFaults::partitioned(uint32_t a, uint32_t b) const {
  return std::ranges::any_of(faults_.partitions, [&](const SimPartition& partition) {
    const auto inside = [&](size_t port) { return std::ranges::count(partition.island, port) > 0; };
    return partition.window.contains(fabric_.loop_.now()) && inside(a) != inside(b);
  });
}

bool PacketFaults::loses_word(const FabricPacket& packet) {
  if (packet.kind != PacketKind::kControl || packet.payload_bytes == 0) return false;
  const uint32_t sender = fabric_.sender_of(packet);
  return std::ranges::any_of(faults_.word_losses, [&](const SimWordLoss& loss) {
    return loss.port.value_or(sender) == sender && fabric_.random_.chance(loss.probability);
  });
}

void PacketFaults::pass(FabricPacket& packet) {
  if (partitioned(fabric_.sender_of(packet), fabric_.receiver_of(packet))) {
    return fabric_.drop(packet, FabricDrop::kPartition);
  }
  if (loses_word(packet)) return fabric_.drop(packet, FabricDrop::kLoss);
  if (fabric_.random_.chance(faults_.loss)) return fabric_.drop(packet, FabricDrop::kLoss);
  if (fabric_.random_.chance(faults_.duplication)) duplicate(packet);
  corrupt_and_delay(packet);
}

// The copy goes first. Without a free packet in the store nothing is duplicated.
void PacketFaults::duplicate(const FabricPacket& packet) {
  if (fabric_.store_is_full()) return;
  const auto bytes = fabric_.carried(packet);
  FabricPacket& copy = fabric_.store_.take(bytes.size());
  uint8_t* const memory = copy.memory;
  const bool large = copy.large;
  copy = packet;
  copy.memory = memory;
  copy.large = large;
  std::ranges::copy(bytes, memory);
  ++fabric_.counters_.duplicated;
  fabric_.trace_.add(TraceHash::Event::kDuplicated, fabric_.loop_.now(), copy);
  corrupt_and_delay(copy);
}

void PacketFaults::corrupt_and_delay(FabricPacket& packet) {
  if (fabric_.random_.chance(faults_.corruption)) corrupt(packet);
  if (!fabric_.random_.chance(faults_.reordering)) return fabric_.enter_switch(packet);
  const auto most = static_cast<uint64_t>(faults_.reorder_delay.ns());
  const auto delay = static_cast<int64_t>(fabric_.random_.below(most + 1));
  ++fabric_.counters_.delayed;
  late_.push_back({fabric_.loop_.now() + Duration::from_ns(delay), late_number_++, &packet});
  std::push_heap(late_.begin(), late_.end(), later);
  fabric_.loop_.arm(late_timer_, late_.front().time);
}

// Only carried bytes can change, not elided payload.
void PacketFaults::corrupt(FabricPacket& packet) {
  const auto bytes = fabric_.carried(packet);
  if (bytes.empty()) return;
  const uint64_t bit = fabric_.random_.below(bytes.size() * 8);
  bytes[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
  ++fabric_.counters_.corrupted;
  fabric_.trace_.add(TraceHash::Event::kCorrupted, fabric_.loop_.now(), packet, bit);
}

void PacketFaults::on_event(Instant now, uint32_t what) {
  if (what == kStallEnd) {
    for (const SimStall& stall : faults_.stalls) {
      if (stall.window.until == now) fabric_.ports_[stall.port].wake();
    }
    return arm_stall_timer();
  }
  std::pop_heap(late_.begin(), late_.end(), later);
  FabricPacket& packet = *late_.back().packet;
  late_.pop_back();
  if (!late_.empty()) fabric_.loop_.arm(late_timer_, late_.front().time);
  fabric_.enter_switch(packet);
}

}  // namespace pacecar
