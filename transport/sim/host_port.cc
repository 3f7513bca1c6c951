#include "transport/sim/host_port.h"

#include <algorithm>
#include <cstring>

#include "transport/base/check.h"
#include "transport/sim/fabric.h"
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
  std::ranges::copy(kIpv4Prefix, address.ip.begin());
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

HostPort::HostPort(Fabric& fabric, uint32_t process, Rate line_rate)
    : fabric_(fabric),
      process_(process),
      host_(fabric.topology_.host_of(process)),
      local_(static_cast<uint8_t>(process % fabric.topology_.processes)),
      address_(process_address(process, 0)),
      reader_timer_(fabric.loop_.add_timer(*this, 0)) {
  const FabricConfig& config = fabric.config_;
  caps_.datagram_bytes = config.hosts.datagram_bytes;
  caps_.burst_bytes = std::max(config.hosts.burst_bytes, config.hosts.datagram_bytes);
  caps_.jitter = config.hosts.jitter;
  caps_.pause = config.hosts.pause;
  caps_.receive_bytes = config.hosts.inbox_bytes;
  caps_.paths = config.hosts.paths;
  caps_.line_rate = line_rate;
  caps_.sees_ipv4_header = true;  // no IP header exists, only the agreed word
  caps_.sees_ecn = config.switches.ecn.kind != EcnConfig::Kind::kOff;
  if (config.hosts.drain_rate > Rate()) reader_.emplace(config.hosts.drain_rate);
}

uint16_t HostPort::source_port(uint16_t path, TrafficClass /*traffic_class*/) const {
  return process_address(process_, path).port;
}

bool HostPort::frozen() const { return fabric_.faults_.frozen(process_); }

size_t HostPort::send(std::span<const TxPacket> packets, Instant now) {
  PACECAR_CHECK(now == fabric_.loop_.now());
  size_t taken = 0;
  if (!frozen()) {
    while (taken < packets.size() && send_one(packets[taken])) ++taken;
  }
  if (taken < packets.size()) ++blocked_sends_;
  return taken;
}

bool HostPort::too_long(const TxPacket& packet) const {
  return packet.size() > caps_.datagram_bytes ||
         (fabric_.config_.payload == PayloadMode::kLength &&
          kept_bytes(packet) > fabric_.config_.header_bytes);
}

// How much of a packet is carried as bytes.
Bytes HostPort::kept_bytes(const TxPacket& packet) const {
  const bool keeps_payload = fabric_.config_.payload == PayloadMode::kBytes ||
                             packet.traffic_class == TrafficClass::kControl;
  return packet.size() - (keeps_payload ? 0 : packet.payload.size());
}

HostPort::Outgoing HostPort::outgoing(const TxPacket& packet, uint32_t destination) const {
  const uint64_t hash = flow_hash(process_, destination, packet.path);
  return {.destination = destination,
          .hash = hash,
          .link = fabric_.choose_uplink(host_, fabric_.topology_.host_of(destination), hash),
          .data = packet.traffic_class == TrafficClass::kData,
          .wire_bytes = packet.size() + fabric_.config_.hosts.overhead_bytes};
}

bool HostPort::has_room(const Outgoing& packet) const {
  const FabricLink& link = fabric_.links_[packet.link];
  const HostPortConfig& limits = fabric_.config_.hosts;
  if (!packet.data) {
    return link.queue.control().bytes(local_) + packet.wire_bytes <= limits.control_queue_bytes;
  }
  const Bytes waiting = link.data_bytes(fabric_.loop_.now(), local_);
  return waiting == 0 || waiting + packet.wire_bytes <= limits.data_queue_bytes;
}

// False when it does not fit now.
bool HostPort::send_one(const TxPacket& packet) {
  PACECAR_CHECK(packet.path < caps_.paths);
  if (too_long(packet)) return true;  // refused
  const Outgoing out =
      outgoing(packet, find_process(*packet.destination, fabric_.topology_.all_processes()));
  if (!has_room(out)) {
    blocked_ = out;
    fabric_.watch_room(out.link);
    return false;
  }
  if (fabric_.store_is_full()) {
    fabric_.watch_store(process_);
    return false;
  }
  fabric_.send(out.link, make_packet(out, packet));
  return true;
}

FabricPacket& HostPort::make_packet(const Outgoing& to, const TxPacket& from) const {
  FabricPacket& packet = fabric_.store_.take(kept_bytes(from));
  packet.flow_hash = to.hash;
  packet.source = host_;
  packet.source_process = local_;
  packet.destination = fabric_.topology_.host_of(to.destination);
  packet.destination_process = static_cast<uint8_t>(to.destination % fabric_.topology_.processes);
  packet.wire_bytes = static_cast<uint32_t>(to.wire_bytes);
  packet.path = from.path;
  packet.kind = to.data ? PacketKind::kData : PacketKind::kControl;
  packet.ecn = to.data && caps_.sees_ecn ? Ecn::kCapable0 : Ecn::kNotCapable;
  packet.hops = 0;
  packet.whole = false;
  packet.header_bytes = static_cast<uint16_t>(from.header.size());
  packet.payload_bytes = static_cast<uint32_t>(from.payload.size());
  packet.trailer_bytes = static_cast<uint16_t>(from.trailer.size());
  uint8_t* memory = append(packet.memory, from.header);
  if (fabric_.keeps_payload(packet)) memory = append(memory, from.payload);
  append(memory, from.trailer);
  return packet;
}

bool HostPort::send_frame(const FabricFrame& frame) {
  PACECAR_CHECK(fabric_.config_.payload == PayloadMode::kBytes);
  PACECAR_CHECK(frame.kept_bytes <= frame.bytes.size());
  const TxPacket packet{.header = frame.bytes.first(frame.kept_bytes),
                        .payload = frame.bytes.subspan(frame.kept_bytes),
                        .traffic_class = frame.traffic_class};
  const Outgoing out = outgoing(packet, frame.destination);
  if (too_long(packet) || !has_room(out) || fabric_.store_is_full()) return false;
  FabricPacket& inside = make_packet(out, packet);
  inside.ecn = frame.ecn;
  inside.whole = frame.kept_bytes == 0;
  fabric_.send(out.link, inside);
  return true;
}

void HostPort::link_is_free(LinkId link) {
  if (!blocked_ || blocked_->link != link) return;
  if (!has_room(*blocked_)) return fabric_.watch_room(link);
  blocked_.reset();
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
  if (!arrivals_.empty() && packet.is_data()) {
    const auto counted = arrivals_.find(fabric_.sender_of(packet));
    if (counted != arrivals_.end()) counted->second += packet.payload_bytes;
  }
  fabric_.trace_.add(TraceHash::Event::kArrived, fabric_.loop_.now(), packet);
  if (!was_empty) return;
  if (may_read()) {
    wake();
  } else {
    fabric_.loop_.arm(reader_timer_, reader_->free_at());
  }
}

bool HostPort::may_read() { return !reader_ || !reader_->busy(fabric_.loop_.now()); }

void HostPort::wake() {
  if (listener_ == nullptr || frozen()) return;
  listener_->on_event(fabric_.loop_.now(), listener_what_);
}

size_t HostPort::receive(std::span<RxPacket> packets, Instant now) {
  PACECAR_CHECK(now == fabric_.loop_.now());
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
  if (!inbox_.empty() && !may_read()) fabric_.loop_.arm(reader_timer_, reader_->free_at());
  return count;
}

void HostPort::hand_over(FabricPacket& packet, RxPacket& to, Address& source) {
  const Instant now = fabric_.loop_.now();
  const Bytes size = datagram_bytes(packet);
  const bool elided = !fabric_.keeps_payload(packet);
  source = process_address(fabric_.sender_of(packet), packet.path);
  to = RxPacket{
      .bytes = {packet.memory, elided ? size - packet.payload_bytes : size},
      .source = &source,
      .ecn = packet.ecn,
      .waited = fabric_.config_.hosts.times_arrivals ? now - packet.arrival : Duration(),
      .elided = elided ? packet.payload_bytes : 0,
      .trimmed = packet.kind == PacketKind::kTrimmed || packet.kind == PacketKind::kTrimmedInCore,
      .trimmed_in_core = packet.kind == PacketKind::kTrimmedInCore};
  if (packet.hops > 0) to.telemetry = {fabric_.store_.telemetry(packet), packet.hops};
  inbox_bytes_ -= size;
  if (reader_) reader_->send(size, now);
  fabric_.deliver(packet);
}

void HostPort::release_lent() {
  while (!lent_.empty()) fabric_.give_back(lent_.pop());
}

}  // namespace pacecar
