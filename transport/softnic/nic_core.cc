#include "transport/softnic/nic_core.h"

#include <algorithm>
#include <bit>

#include "transport/base/seq.h"
#include "transport/softnic/extended/packet_guard.h"
#include "transport/wire/extended.h"
#include "transport/wire/roce.h"

namespace pacecar {
namespace {

constexpr Bytes kBurstsPerAck = 2;  // Bursts per acknowledgement, if AckPolicy::bytes is 0.
constexpr uint32_t kControlWindowPackets = 256;  // Control writes are few and small.

// Bytes of the slab: headers and trailers of one poll_transmit, and encrypted payloads. It is large
// enough for small bursts, and small enough for the processor's cache.
size_t slab_bytes(const SoftNicConfig& config) {
  constexpr size_t kMost = 32768;
  constexpr Bytes kSealedBursts = 4;
  if (config.security == Security::kEncrypt) return kMost + kSealedBursts * config.burst_bytes;
  if (config.transmit_packets == 0) return kMost;
  const uint32_t window = std::max(config.window_packets, kControlWindowPackets);
  const size_t largest =
      wire::ack_bytes(window / 64, kMaxTelemetryHops) + trailer_bytes(config.security);
  return std::min(kMost, config.transmit_packets * largest);
}

uint32_t regions_of(const SoftNicConfig& config) {
  return config.regions + (config.wire_mode == WireMode::kExtended ? 0 : 1);  // standby lanes
}

size_t slots_of(const SoftNicConfig& config) {
  return std::bit_ceil(config.queue_pairs) * (config.wire_mode == WireMode::kExtended ? 1U : 2U);
}

SoftNicConfig resolve(SoftNicConfig config) {
  if (config.wire_mode == WireMode::kRoce) config.mtu = standard_mtu(config.mtu);
  if (config.ack.bytes == 0) config.ack.bytes = config.burst_bytes * kBurstsPerAck;
  return config;
}

}  // namespace

uint32_t window_packets(const SoftNicConfig& nic, const QueuePairConfig& queue_pair) {
  return queue_pair.paced ? nic.window_packets : kControlWindowPackets;
}

NicCore::NicCore(const SoftNicConfig& given, RandomSource source, Instant now)
    : config(resolve(given)),
      random(source),
      memory(regions_of(config), random, config.random_addresses),
      queue_pairs(slots_of(config)),
      timers(static_cast<uint32_t>(queue_pairs.size()) + config.flows, now),
      acks(config, queue_pairs),
      scheduler(config, queue_pairs, timers),
      events(queue_pairs.size()),
      posted(queue_pairs.size()),
      received(config.completions),
      slab(slab_bytes(config)),
      next_generation_(random()) {
  PACECAR_CHECK(queue_pairs.size() <= (1U << 17));
  PACECAR_CHECK(config.burst_bytes >= config.mtu && config.paths > 0);
}

uint32_t NicCore::user_slots() const { return std::bit_ceil(config.queue_pairs); }

uint32_t NicCore::next_number(uint32_t slot) {
  const auto slots = static_cast<uint32_t>(queue_pairs.size());
  const uint32_t prefix = config.port_slot.value_or(0) << roce::kSlotShift;
  const uint32_t mask = config.port_slot ? (1U << roce::kSlotShift) - 1 : kPsnMask;
  if (((next_generation_ * slots) & mask) == 0) ++next_generation_;  // 0 and 1 are taken
  return prefix | ((next_generation_++ * slots | slot) & mask);
}

uint32_t NicCore::random_psn() { return random() & static_cast<uint32_t>(kPsnMask); }

void NicCore::break_queue_pair(QueuePair& qp, CompletionStatus status, const char* fault) {
  if (qp.state == QueuePair::State::kBroken) return;
  qp.state = QueuePair::State::kBroken;
  qp.broken_by = status;
  qp.fault = fault;
  if (qp.end != nullptr) qp.end->on_broken();
  if (!qp.internal) events.add(qp.slot);
}

void NicCore::detach(QueuePair& qp) {
  acks.remove(qp.slot);
  events.remove(qp.slot);
  posted.remove(qp.slot);
  timers.cancel(qp.slot);
  scheduler.leave(qp);
  qp.end.reset();
  ++invalidations;
}

}  // namespace pacecar
