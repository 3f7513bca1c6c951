#include "transport/sim/sim_network.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "transport/base/check.h"

namespace pacecar {
namespace {

constexpr uint16_t kRoceUdpPort = 4791;

// ::ffff:10.0.x.y, where x.y is the port's index; paths differ in their UDP port.
Address source_of(size_t port, uint16_t path) {
  Address address;
  address.ip[10] = address.ip[11] = 0xFF;
  address.ip[12] = 10;
  address.ip[14] = static_cast<uint8_t>(port >> 8U);
  address.ip[15] = static_cast<uint8_t>(port);
  address.port = static_cast<uint16_t>(kRoceUdpPort + path);
  return address;
}

bool listed(const std::vector<size_t>& ports, size_t port) {
  return std::find(ports.begin(), ports.end(), port) != ports.end();
}

uint8_t* append(uint8_t* to, std::span<const uint8_t> bytes) {
  return std::copy(bytes.begin(), bytes.end(), to);
}

}  // namespace

uint64_t SimCounters::all_dropped() const {
  return std::accumulate(dropped.begin(), dropped.end(), uint64_t{0});
}

SimNetwork::SimNetwork(const SimConfig& config, uint64_t seed)
    : config_(config),
      random_(seed),
      pool_(config.packets, config.datagram_bytes),
      events_(config.packets),
      up_(config.ports, SimLink(config.up)),
      down_(config.ports, SimLink(config.down)) {
  PACECAR_CHECK(config.ports <= 1U << 16U);  // what the addresses can tell apart
  PACECAR_CHECK(std::min(config.up.queue_bytes, config.down.queue_bytes) >= config.datagram_bytes);
  for (size_t i = 0; i < config.ports; ++i) {
    for (uint16_t path = 0; path < config.paths; ++path) sources_.push_back(source_of(i, path));
    ports_.emplace_back(*this, i);
  }
}

Instant SimNetwork::next_event() const {
  Instant next = events_.next_time();
  for (const SimPort& port : ports_) {
    if (port.writable_at() > now_) next = std::min(next, port.writable_at());
  }
  for (const SimStall& stall : faults_.stalls) {
    if (stall.window.until > now_) next = std::min(next, stall.window.until);
  }
  return next;
}

void SimNetwork::advance_to(Instant time) {
  PACECAR_CHECK(time >= now_);
  while (events_.next_time() <= time) {
    const auto event = events_.pop();
    now_ = event.time;
    if (event.payload.hop == Hop::kSwitch) {
      at_switch(event.payload.slot);
    } else {
      at_inbox(event.payload.slot);
    }
  }
  now_ = time;
}

SimCounters SimNetwork::counters() const {
  SimCounters counters = counters_;
  counters.in_flight = events_.size();
  for (const SimPort& port : ports_) counters.in_flight += port.waiting();
  return counters;
}

bool SimNetwork::stalled(size_t port) const {
  return std::any_of(faults_.stalls.begin(), faults_.stalls.end(), [&](const SimStall& stall) {
    return stall.port == port && stall.window.contains(now_);
  });
}

bool SimNetwork::inject(size_t port, const TxPacket& packet) {
  PACECAR_CHECK(packet.path < config_.paths);
  if (pool_.exhausted()) return false;
  const SimLink::Offer offer = up_[port].offer(packet.size(), now_);
  if (!offer.accepted) return false;
  const PacketSlot slot = *pool_.take();
  const bool capable = config_.down.ecn_threshold_bytes > 0;
  pool_.packet(slot) = SimPacket{.size = packet.size(),
                                 .source = port,
                                 .path = packet.path,
                                 .destination = find_port(*packet.destination),
                                 .ecn = capable ? Ecn::kCapable0 : Ecn::kNotCapable};
  uint8_t* to = pool_.bytes(slot).data();
  append(append(append(to, packet.header), packet.payload), packet.trailer);
  ++counters_.sent;
  trace(TraceKind::kSent, slot);
  events_.push(offer.arrival, Arrival{slot, Hop::kSwitch});
  return true;
}

RxPacket SimNetwork::hand_over(PacketSlot slot) {
  ++counters_.delivered;
  trace(TraceKind::kDelivered, slot);
  const SimPacket& packet = pool_.packet(slot);
  return RxPacket{.bytes = pool_.bytes(slot),
                  .source = &sources_[packet.source * config_.paths + packet.path],
                  .ecn = packet.ecn};
}

void SimNetwork::at_switch(PacketSlot slot) {
  const SimPacket& packet = pool_.packet(slot);
  if (packet.destination >= config_.ports) return drop(slot, SimDrop::kNoRoute);
  if (partitioned(packet.source, packet.destination)) return drop(slot, SimDrop::kPartition);
  if (random_.chance(faults_.loss)) return drop(slot, SimDrop::kLoss);
  if (random_.chance(faults_.duplication)) duplicate(slot);
  forward(slot);
}

void SimNetwork::forward(PacketSlot slot) {
  if (random_.chance(faults_.corruption)) corrupt(slot);
  SimPacket& packet = pool_.packet(slot);
  const SimLink::Offer offer = down_[packet.destination].offer(packet.size, now_);
  if (!offer.accepted) return drop(slot, SimDrop::kQueueFull);
  if (offer.marked) {
    packet.ecn = Ecn::kCongestion;
    ++counters_.marked;
  }
  Duration late;
  if (random_.chance(faults_.reordering)) {
    late = Duration::from_ns(
        static_cast<int64_t>(random_.below(static_cast<uint64_t>(faults_.reorder_delay.ns()) + 1)));
    ++counters_.delayed;
  }
  events_.push(offer.arrival + late, Arrival{slot, Hop::kInbox});
}

void SimNetwork::at_inbox(PacketSlot slot) {
  if (!ports_[pool_.packet(slot).destination].put_into_inbox(slot)) {
    return drop(slot, SimDrop::kInboxFull);
  }
  trace(TraceKind::kArrived, slot);
}

// The copy goes first; it needs a free slot and does not happen without one.
void SimNetwork::duplicate(PacketSlot slot) {
  const auto copy = pool_.take();
  if (!copy) return;
  pool_.packet(*copy) = pool_.packet(slot);
  const auto bytes = pool_.bytes(slot);
  std::copy(bytes.begin(), bytes.end(), pool_.bytes(*copy).begin());
  ++counters_.duplicated;
  trace(TraceKind::kDuplicated, *copy);
  forward(*copy);
}

void SimNetwork::corrupt(PacketSlot slot) {
  const auto bytes = pool_.bytes(slot);
  if (bytes.empty()) return;
  const uint64_t bit = random_.below(bytes.size() * 8);
  bytes[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
  ++counters_.corrupted;
  trace(TraceKind::kCorrupted, slot, bit);
}

void SimNetwork::drop(PacketSlot slot, SimDrop cause) {
  ++counters_.dropped[static_cast<size_t>(cause)];
  trace(TraceKind::kDropped, slot, static_cast<uint64_t>(cause));
  pool_.give_back(slot);
}

bool SimNetwork::partitioned(size_t a, size_t b) const {
  return std::any_of(faults_.partitions.begin(), faults_.partitions.end(),
                     [&](const SimPartition& partition) {
                       return partition.window.contains(now_) &&
                              listed(partition.island, a) != listed(partition.island, b);
                     });
}

size_t SimNetwork::find_port(const Address& address) const {
  const size_t index = size_t{address.ip[14]} << 8U | address.ip[15];
  const bool known = index < config_.ports && this->address(index) == address;
  return known ? index : config_.ports;
}

void SimNetwork::trace(TraceKind kind, PacketSlot slot, uint64_t detail) {
  const SimPacket& packet = pool_.packet(slot);
  const auto bytes = pool_.bytes(slot);
  std::array<uint64_t, 2> head{};
  std::memcpy(head.data(), bytes.data(), std::min(bytes.size(), sizeof(head)));
  trace_.add(static_cast<uint64_t>(now_.ns()));
  trace_.add(static_cast<uint64_t>(kind) << 8U | static_cast<uint64_t>(packet.ecn));
  trace_.add(static_cast<uint64_t>(packet.source) << 40U | uint64_t{packet.path} << 24U |
             packet.destination);
  trace_.add(packet.size);
  trace_.add(head[0]);
  trace_.add(head[1]);
  trace_.add(detail);
}

}  // namespace pacecar
