#include "transport/sim/host_port.h"

#include <algorithm>
#include <cstring>

#include "transport/base/check.h"
#include "transport/base/prefetch.h"
#include "transport/sim/ecmp_hash.h"
#include "transport/sim/fabric_impl.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

constexpr uint16_t kRoceUdpPort = 4791;
constexpr uint8_t kNetwork = 10;  // 10.0.0.0/8

uint8_t* append(uint8_t* to, std::span<const uint8_t> bytes) {
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  return to + bytes.size();
}

Bytes datagram_bytes(const FabricPacket& packet) {
  return Bytes{packet.header_bytes} + packet.payload_bytes + packet.trailer_bytes;
}

}  // namespace

Address process_address(uint32_t process, uint16_t path) {
  Address address;
  std::copy(kIpv4Prefix.begin(), kIpv4Prefix.end(), address.ip.begin());
  address.ip[12] = kNetwork;
  address.ip[13] = static_cast<uint8_t>(process >> 16);
  address.ip[14] = static_cast<uint8_t>(process >> 8);
  address.ip[15] = static_cast<uint8_t>(process);
  address.port = static_cast<uint16_t>(kRoceUdpPort + path);
  return address;
}

uint32_t find_process(const Address& address, uint32_t processes) {
  const uint32_t process =
      uint32_t{address.ip[13]} << 16 | uint32_t{address.ip[14]} << 8 | address.ip[15];
  return process < processes && address == process_address(process, 0) ? process : processes;
}

HostPort::HostPort(Fabric::Impl& fabric, uint32_t process, Rate line_rate)
    : fabric_(fabric),
      process_(process),
      host_(fabric.topology.host_of(process)),
      local_(static_cast<uint8_t>(process % fabric.topology.processes)),
      address_(process_address(process, 0)),
      reader_timer_(fabric.loop.add_timer(*this, 0)) {
  const FabricConfig& config = fabric.config;
  caps_.datagram_bytes = config.hosts.datagram_bytes;
  caps_.burst_bytes = config.hosts.datagram_bytes;
  caps_.receive_bytes = config.hosts.inbox_bytes;
  caps_.paths = config.hosts.paths;
  caps_.line_rate = line_rate;
  caps_.sees_ipv4_header = true;  // there is no IP header, only the agreed word
  caps_.sees_ecn = config.switches.ecn.kind != EcnConfig::Kind::kOff;
  if (config.hosts.drain_rate > Rate()) reader_.emplace(config.hosts.drain_rate);
}

uint16_t HostPort::source_port(uint16_t path, TrafficClass /*traffic_class*/) const {
  return process_address(process_, path).port;
}

bool HostPort::frozen() const { return fabric_.faults.frozen(process_); }

size_t HostPort::send(std::span<const TxPacket> packets, Instant now) {
  PACECAR_CHECK(now == fabric_.loop.now());
  size_t taken = 0;
  if (!frozen()) {
    while (taken < packets.size() && send_one(packets[taken])) ++taken;
  }
  if (taken < packets.size()) ++counters_.send_blocked;
  return taken;
}

bool HostPort::too_long(const TxPacket& packet) const {
  return packet.size() > caps_.datagram_bytes || (fabric_.config.payload == PayloadMode::kLength &&
                                                  kept_bytes(packet) > fabric_.config.header_bytes);
}

// How much of a packet is carried as bytes.
Bytes HostPort::kept_bytes(const TxPacket& packet) const {
  const bool keeps_payload = fabric_.config.payload == PayloadMode::kBytes ||
                             packet.traffic_class == TrafficClass::kControl;
  return packet.size() - (keeps_payload ? 0 : packet.payload.size());
}

bool HostPort::has_room(LinkId id, bool data, Bytes size) const {
  const FabricLink& link = fabric_.links[id];
  const bool shared = fabric_.topology.processes > 1;
  if (!data) {
    const Bytes waiting = shared ? link.queue.control_bytes(local_) : link.queue.control_bytes();
    return waiting + size <= fabric_.config.hosts.control_queue_bytes;
  }
  const Instant now = fabric_.loop.now();
  const Bytes waiting = shared ? link.data_bytes(now, local_) : link.data_bytes(now);
  return waiting == 0 || waiting + size <= fabric_.config.hosts.data_queue_bytes;
}

// False when it does not fit now.
bool HostPort::send_one(const TxPacket& packet) {
  PACECAR_CHECK(packet.path < caps_.paths);
  if (too_long(packet)) {
    ++counters_.send_errors;
    return true;
  }
  const uint32_t destination = find_process(*packet.destination, fabric_.topology.all_processes());
  const uint64_t hash = flow_hash(process_, destination, packet.path);
  const LinkId link = fabric_.choose_uplink(host_, fabric_.topology.host_of(destination), hash);
  const bool data = packet.traffic_class == TrafficClass::kData;
  const Bytes size = packet.size() + fabric_.config.hosts.overhead_bytes;
  if (!has_room(link, data, size)) {
    blocked_ = {.active = true, .data = data, .link = link, .size = size};
    fabric_.watch_room(link);
    return false;
  }
  if (fabric_.store.in_use() >= fabric_.config.packets) {
    fabric_.watch_store(process_);
    return false;
  }
  FabricPacket& inside = take_packet(destination, hash, size, kept_bytes(packet));
  fill(inside, packet);
  fabric_.send(link, inside);
  return true;
}

// `destination`: a process; an unknown one gets an unknown host.
FabricPacket& HostPort::take_packet(uint32_t destination, uint64_t hash, Bytes size,
                                    Bytes kept) const {
  FabricPacket& packet = fabric_.store.take(kept);
  packet.flow_hash = hash;
  packet.source = host_;
  packet.source_process = local_;
  packet.destination = fabric_.topology.host_of(destination);
  packet.destination_process = static_cast<uint8_t>(destination % fabric_.topology.processes);
  packet.wire_bytes = static_cast<uint32_t>(size);
  return packet;
}

bool HostPort::send_frame(const FabricFrame& frame) {
  PACECAR_CHECK(fabric_.config.payload == PayloadMode::kBytes);
  PACECAR_CHECK(frame.kept_bytes <= frame.bytes.size());
  const uint64_t hash = flow_hash(process_, frame.destination, 0);
  const LinkId link =
      fabric_.choose_uplink(host_, fabric_.topology.host_of(frame.destination), hash);
  const bool data = frame.traffic_class == TrafficClass::kData;
  const Bytes size = frame.bytes.size() + fabric_.config.hosts.overhead_bytes;
  if (frame.bytes.size() > caps_.datagram_bytes || !has_room(link, data, size) ||
      fabric_.store.in_use() >= fabric_.config.packets) {
    return false;
  }
  FabricPacket& inside = take_packet(frame.destination, hash, size, frame.bytes.size());
  inside.path = 0;
  inside.kind = data ? PacketKind::kData : PacketKind::kControl;
  inside.ecn = frame.ecn;
  inside.hops = 0;
  inside.whole = frame.kept_bytes == 0;
  inside.header_bytes = static_cast<uint16_t>(frame.kept_bytes);
  inside.payload_bytes = static_cast<uint32_t>(frame.bytes.size() - frame.kept_bytes);
  inside.trailer_bytes = 0;
  append(inside.memory, frame.bytes);
  fabric_.send(link, inside);
  return true;
}

void HostPort::fill(FabricPacket& packet, const TxPacket& from) const {
  const bool data = from.traffic_class == TrafficClass::kData;
  packet.path = from.path;
  packet.kind = data ? PacketKind::kData : PacketKind::kControl;
  packet.ecn = data && caps_.sees_ecn ? Ecn::kCapable0 : Ecn::kNotCapable;
  packet.hops = 0;
  packet.whole = false;
  packet.header_bytes = static_cast<uint16_t>(from.header.size());
  packet.payload_bytes = static_cast<uint32_t>(from.payload.size());
  packet.trailer_bytes = static_cast<uint16_t>(from.trailer.size());
  uint8_t* to = append(packet.memory, from.header);
  if (fabric_.keeps_payload(packet)) to = append(to, from.payload);
  append(to, from.trailer);
}

void HostPort::link_is_free(LinkId link) {
  if (!blocked_.active || blocked_.link != link) return;
  if (!has_room(link, blocked_.data, blocked_.size)) return fabric_.watch_room(link);
  blocked_.active = false;
  wake();
}

void HostPort::arrive(FabricPacket& packet) {
  const Bytes size = datagram_bytes(packet);
  if (inbox_bytes_ + size > caps_.receive_bytes)
    return fabric_.drop(packet, FabricDrop::kInboxFull);
  const bool was_empty = inbox_.empty();
  inbox_bytes_ += size;
  inbox_.push(packet);
  ++inbox_packets_;
  if (!arrivals_.empty() && packet.is_data()) note_arrival(packet);
  fabric_.trace(Fabric::Impl::TraceKind::kArrived, packet);
  if (!was_empty) return;
  if (may_read()) {
    wake();
  } else {
    fabric_.loop.arm(reader_timer_, reader_->free_at());
  }
}

std::vector<HostPort::Arrivals>::const_iterator HostPort::find_arrivals(uint32_t source) const {
  return std::ranges::lower_bound(arrivals_, source, {}, &Arrivals::source);
}

void HostPort::count_arrivals(uint32_t source) {
  const auto found = find_arrivals(source);
  if (found == arrivals_.end() || found->source != source) arrivals_.insert(found, {source, 0});
}

Bytes HostPort::arrived_bytes(uint32_t source) const {
  const auto found = find_arrivals(source);
  return found == arrivals_.end() || found->source != source ? 0 : found->bytes;
}

void HostPort::note_arrival(const FabricPacket& packet) {
  const uint32_t source = fabric_.sender_of(packet);
  const auto found = find_arrivals(source);
  if (found == arrivals_.end() || found->source != source) return;
  arrivals_[static_cast<size_t>(found - arrivals_.begin())].bytes += packet.payload_bytes;
}

bool HostPort::may_read() { return !reader_ || !reader_->busy(fabric_.loop.now()); }

void HostPort::on_event(Instant, uint32_t) { wake(); }

void HostPort::prepare(unsigned events_before) const {
  if (events_before + 1 == kEventsAhead) return prefetch(*this);
  if (listener_ != nullptr) listener_->prepare(listener_what_, events_before);
}

void HostPort::wake() {
  if (listener_ == nullptr || frozen()) return;
  listener_->on_event(fabric_.loop.now(), listener_what_);
}

size_t HostPort::receive(std::span<RxPacket> packets, Instant now) {
  PACECAR_CHECK(now == fabric_.loop.now());
  release_lent();
  if (frozen()) return 0;
  const size_t most = std::min(packets.size(), inbox_packets_);
  if (lent_sources_.size() < most) lent_sources_.resize(most);
  size_t count = 0;
  while (count < packets.size() && !inbox_.empty() && may_read()) {
    FabricPacket& packet = inbox_.pop();
    --inbox_packets_;
    hand_over(packet, packets[count], lent_sources_[count]);
    lent_.push(packet);
    ++count;
  }
  if (!inbox_.empty() && !may_read()) fabric_.loop.arm(reader_timer_, reader_->free_at());
  return count;
}

void HostPort::hand_over(FabricPacket& packet, RxPacket& to, Address& source) {
  const Instant now = fabric_.loop.now();
  const Bytes size = datagram_bytes(packet);
  const bool elided = !fabric_.keeps_payload(packet);
  source = process_address(fabric_.sender_of(packet), packet.path);
  to = RxPacket{
      .bytes = {packet.memory, elided ? size - packet.payload_bytes : size},
      .source = &source,
      .ecn = packet.ecn,
      .waited = now - packet.arrival,
      .elided = elided ? packet.payload_bytes : 0,
      .trimmed = packet.kind == PacketKind::kTrimmed || packet.kind == PacketKind::kTrimmedInCore,
      .trimmed_in_core = packet.kind == PacketKind::kTrimmedInCore};
  if (packet.hops > 0) to.telemetry = {fabric_.store.telemetry(packet), packet.hops};
  inbox_bytes_ -= size;
  if (reader_) reader_->send(size, now);
  fabric_.deliver(packet);
}

void HostPort::release_lent() {
  while (!lent_.empty()) fabric_.give_back(lent_.pop());
}

}  // namespace pacecar
