// The part of SoftNic that receives packets of extended mode. Packets are untrusted until queue
// pair, source and trailer have been checked.
#include <algorithm>

#include "transport/softnic/soft_nic.h"
#include "transport/wire/extended.h"

namespace pacecar {

// The prediction holds only for the next packets that arrive.
Placement SoftNic::predict(Instant now) {
  const WriteFollower::Write* write = follower_.predicted(now);
  if (write == nullptr) return {};
  const QueuePair* qp = find_end(write->queue_pair);
  if (qp == nullptr || qp->state != QueuePair::State::kConnected || !qp->responder) return {};
  const Bytes left = qp->responder->left_of(write->msn, write->psn);
  if (left == 0) return {};
  predicted_ = *write;
  return {.place = memory_.writable(write->key, write->address, left),
          .bytes = left,
          .payload_bytes = write->payload,
          .header_bytes = wire::kDataHeaderBytes,
          .trailer_bytes = trailer_bytes_};
}

// Whether the placed payload is at the addresses in the packets' headers.
bool SoftNic::as_predicted(std::span<const RxPacket> packets) const {
  uint64_t address = predicted_.address;
  for (const RxPacket& packet : packets) {
    if (packet.placed.empty()) return true;  // later ones are not placed either
    if (!wire::names(packet.bytes, predicted_.queue_pair, predicted_.key, address)) return false;
    address += packet.placed.size();
  }
  return true;
}

// Copies misplaced payload away before any payload is placed.
void SoftNic::put_together(std::span<const RxPacket> packets) {
  together_.assign(packets.begin(), packets.end());
  size_t bytes = 0;
  for (const RxPacket& packet : packets) bytes += packet.bytes.size() + packet.placed.size();
  in_one_piece_.resize(bytes);
  auto to = in_one_piece_.begin();
  for (RxPacket& packet : together_) {
    if (packet.placed.empty()) break;
    const auto begin = to;
    const auto header = packet.bytes.first(wire::kDataHeaderBytes);
    for (const auto part : {header, packet.placed, packet.bytes.subspan(header.size())}) {
      to = std::ranges::copy(part, to).out;
    }
    packet.bytes = {begin, to};
    packet.placed = {};
  }
}

// Flattened, as transmit_queue_pair, so that the code per packet is inlined here, although
// take_apart calls the same functions.
[[gnu::flatten]] void SoftNic::on_packets(Instant now, std::span<const RxPacket> packets) {
  if (!packets.empty() && !packets[0].placed.empty() && !as_predicted(packets)) {
    put_together(packets);
    packets = together_;
  }
  for (size_t i = 0; i < packets.size(); ++i) {
    const RxPacket& packet = packets[i];
    if (packet.trimmed) {
      on_trimmed(now, packet);
      continue;
    }
    const wire::PacketKind kind = wire::classify(packet.bytes);
    if (kind != wire::PacketKind::kData || !wire::stands_alone(packet.bytes)) {
      take_apart(now, packet);
      continue;
    }
    QueuePair* const qp = on_data(now, packet);
    if (qp == nullptr) continue;
    const auto others = packets.subspan(i + 1);
    i += packet.placed.empty() ? on_alike<false>(now, *qp, packet, others)
                               : on_alike<true>(now, *qp, packet, others);
  }
}

void SoftNic::take_apart(Instant now, const RxPacket& datagram) {
  RxPacket packet = datagram;
  std::span<const uint8_t> rest = datagram.bytes;
  do {
    const wire::PacketKind kind = wire::classify(rest);
    packet.bytes = wire::take_first(rest, kind, trailer_bytes_);
    switch (kind) {
      case wire::PacketKind::kData:
        on_data(now, packet);
        break;
      case wire::PacketKind::kAck:
        on_ack(now, packet);
        break;
      case wire::PacketKind::kNak:
        on_nak(now, packet);
        break;
      case wire::PacketKind::kMalformed:
        on_standard(now, packet);
        break;
    }
  } while (!rest.empty());
}

// The queue pair to which a packet is addressed, if it is connected in extended mode and the packet
// comes from its peer.
QueuePair* SoftNic::find_sender(const RxPacket& packet, uint32_t queue_pair) {
  QueuePair* qp = find_end(queue_pair);
  if (qp == nullptr || qp->state != QueuePair::State::kConnected || !qp->responder) {
    ++counters_.unknown_queue_pair;
    return nullptr;
  }
  if (!same_ip(*packet.source, qp->remote.address)) {
    ++counters_.wrong_source;
    return nullptr;
  }
  return qp;
}

// Whether this new packet must be acknowledged at once, by its request or the policy.
bool SoftNic::ack_at_once(QueuePair& qp, const wire::DataHeader& header) const {
  if (!qp.responder->in_order()) {
    qp.ack_owed |= header.ack_request;
    return header.ack_request || config_.ack.out_of_order_at_once || config_.ack.every_packet;
  }
  if (qp.ack_owed) {  // all packets that were missing at the time of the request have arrived
    qp.ack_owed = false;
    return true;
  }
  return header.ack_request || config_.ack.every_packet;
}

void SoftNic::refuse(const QueuePair& qp, const wire::DataHeader& header, wire::Syndrome syndrome) {
  naks_.push({qp.local.queue_pair, wire::Nak{.destination_qp = qp.remote.queue_pair,
                                             .psn = header.psn,
                                             .echo_timestamp = header.timestamp,
                                             .syndrome = syndrome}});
}

void SoftNic::note_arrival(FlowId flow, const Responder::Data& data) {
  FlowArrival& arrival = flows_[flow].arrival;
  const uint32_t transit = static_cast<uint32_t>(data.arrival.ns()) - data.header.timestamp;
  if (arrival.bytes == 0 || static_cast<int32_t>(transit - arrival.transit_ns) < 0) {
    arrival.transit_ns = transit;
    arrival.timed_bytes = static_cast<uint32_t>(data.bytes());
  }
  flows_.on_arrived(flow, data.bytes());
}

QueuePair* SoftNic::on_data(Instant now, const RxPacket& packet) {
  Responder::Data data{.packet = packet, .arrival = now - packet.waited};
  const wire::DataHeader& header = data.header;
  const bool decoded = wire::decode(body_of(packet.bytes), data.header, data.payload);
  if (!packet.placed.empty()) data.payload = packet.placed;
  const bool apart = packet.elided > 0 || !packet.placed.empty();
  if (!decoded || (apart && (header.taken_back || data.bytes() > header.length))) {
    ++counters_.malformed;
    return nullptr;
  }
  QueuePair* qp = find_sender(packet, header.destination_qp);
  if (qp == nullptr) return nullptr;
  if (!vouches(*qp, packet.bytes, wire::kDataHeaderBytes, packet.placed)) return nullptr;
  if (enciphers_) data.payload = {opened_.data(), data.payload.size()};
  return take_data(*qp, now, data);
}

// Whether this is the first packet after a pause, which is acknowledged at once (AckPolicy::idle).
bool SoftNic::late_for(const QueuePair& qp, const Responder::Data& data) const {
  return answers_pauses_ && qp.responder->idle_since(data.arrival - config_.ack.idle);
}

// Counts a packet that has been placed. True: it must be acknowledged at once.
bool SoftNic::count_placed(QueuePair& qp, Instant now, const Responder::Data& data) {
  const Bytes bytes = data.bytes();
  ++counters_.data_packets_received;
  counters_.data_bytes_received += bytes;
  if (data.header.opcode == wire::Opcode::kWrite) ++counters_.silent_packets_received;
  if (data.marked()) ++counters_.marked_packets;
  if (data.header.length >= in_place_bytes_) {
    follower_.on_packet(data.header, bytes, now);
  }
  if (flows_.reports_arrivals() && qp.config.paced) note_arrival(qp.config.flow, data);
  qp.unacknowledged_bytes += bytes;
  ++qp.unacknowledged_packets;
  return ack_at_once(qp, data.header);
}

QueuePair* SoftNic::take_data(QueuePair& qp, Instant now, const Responder::Data& data) {
  const wire::DataHeader& header = data.header;
  if (received_.full()) {
    ++counters_.completions_full;
    return nullptr;
  }
  QueuePair* followed = nullptr;
  bool at_once = data.marked() || late_for(qp, data);
  switch (qp.responder->on_data(data, memory_)) {
    case Responder::Outcome::kCompleted:
      received_.push(Completion{.bytes = header.length,
                                .queue_pair = qp.local.queue_pair,
                                .immediate = header.immediate,
                                .kind = CompletionKind::kReceived});
      at_once |= count_placed(qp, now, data);
      break;
    case Responder::Outcome::kPlaced:
      at_once |= count_placed(qp, now, data);
      followed = &qp;
      break;
    case Responder::Outcome::kDuplicate:
      counters_.duplicates += header.taken_back ? 0 : 1;  // else it is a probe
      at_once = true;
      break;
    case Responder::Outcome::kOutOfWindow:
      ++counters_.out_of_window;
      return nullptr;
    case Responder::Outcome::kRefused:
      ++counters_.access_errors;
      refuse(qp, header, wire::Syndrome::kRemoteAccessError);
      at_once = qp.responder->ack_due();
      if (!at_once) return nullptr;
      break;
  }
  want_ack(qp, now, at_once);
  return followed;
}

// Takes the leading packets that belong to the same write as `first`, which has just been placed,
// and returns how many. Each is checked like any other packet, but common fields are looked up
// once.
template <bool kPlaced>
size_t SoftNic::on_alike(Instant now, QueuePair& qp, const RxPacket& first,
                         std::span<const RxPacket> packets) {
  const auto like = first.bytes.first<wire::kDataHeaderBytes>();
  wire::DataHeader header;
  std::span<const uint8_t> payload;
  if (packets.empty() || !wire::same_write(packets.front().bytes, like) || received_.full() ||
      !wire::decode(body_of(first.bytes), header, payload) || header.taken_back) {
    return 0;
  }
  const Responder::Target target = qp.responder->target_of(header, memory_);
  bool waits = false;
  for (size_t i = 0; i < packets.size(); ++i) {
    const RxPacket& packet = packets[i];
    if (packet.trimmed || !wire::decode_alike(body_of(packet.bytes), like, header, payload) ||
        !same_ip(*packet.source, qp.remote.address) || (kPlaced && packet.placed.empty())) {
      return i;
    }
    std::span<const uint8_t> placed;
    if constexpr (kPlaced) payload = placed = packet.placed;
    const bool apart = kPlaced || packet.elided > 0;
    if (apart && payload.size() + packet.elided > header.length) return i;
    if (!vouches(qp, packet.bytes, wire::kDataHeaderBytes, placed)) continue;
    const Responder::Data data{
        .packet = packet,
        .arrival = now - packet.waited,
        .header = header,
        .payload = enciphers_ ? std::span<const uint8_t>(opened_.data(), payload.size()) : payload};
    bool at_once = data.marked() || late_for(qp, data);
    if (!qp.responder->on_alike(data, target, kPlaced)) {
      if (take_data(qp, now, data) == nullptr) return i + 1;
      continue;
    }
    at_once |= count_placed(qp, now, data);
    // An acknowledgement that waits is scheduled already.
    if (waits && !at_once && !much_unacknowledged(qp)) continue;
    want_ack(qp, now, at_once);
    waits |= !at_once;
  }
  return packets.size();
}

// A trimmed packet is not authenticated. At worst, a forged one makes the sender retransmit a
// packet.
void SoftNic::on_trimmed(Instant now, const RxPacket& packet) {
  wire::DataHeader header;
  if (!wire::decode_trimmed(packet.bytes, header)) {
    ++counters_.malformed;
    return;
  }
  QueuePair* qp = find_sender(packet, header.destination_qp);
  if (qp == nullptr) return;
  switch (qp->responder->on_trimmed(header)) {
    case Arrival::kNew:
      ++counters_.trimmed_packets;
      counters_.trimmed_in_core += packet.trimmed_in_core ? 1 : 0;
      refuse(*qp, header, wire::Syndrome::kTrimmed);
      break;
    case Arrival::kDuplicate:
      ++counters_.duplicates;
      want_ack(*qp, now, true);
      break;
    case Arrival::kOutOfWindow:
      ++counters_.out_of_window;
      break;
  }
}

void SoftNic::on_ack(Instant now, const RxPacket& packet) {
  wire::AckHeader ack;
  wire::Bitmap bitmap;
  wire::TelemetryView telemetry;
  const auto body = body_of(packet.bytes);
  if (!wire::decode(body, ack, bitmap, telemetry)) {
    ++counters_.malformed;
    return;
  }
  QueuePair* qp = find_sender(packet, ack.destination_qp);
  if (qp == nullptr) return;
  if (!vouches(*qp, packet.bytes, body.size())) return;
  ++counters_.acks_received;
  const Bytes in_flight_before = qp->requester->in_flight();
  const SendProgress progress = qp->requester->on_ack(ack, bitmap, now - packet.waited, now);
  if (qp->config.paced) {
    FlowSignal& signal = flows_[qp->config.flow].signal;
    signal.echo_marked = ack.echo_valid && ack.echo_marked;
    signal.hops = ack.echo_valid ? static_cast<uint8_t>(telemetry.hops()) : 0;
    for (size_t i = 0; i < signal.hops; ++i) signal.telemetry[i] = telemetry[i];
  }
  on_progress(*qp, in_flight_before, progress);
  events_.add(slot_of(*qp));
  arm_timeout(*qp);
  wake(*qp);
}

void SoftNic::on_nak(Instant now, const RxPacket& packet) {
  wire::Nak nak;
  const auto body = body_of(packet.bytes);
  if (!wire::decode(body, nak)) {
    ++counters_.malformed;
    return;
  }
  QueuePair* qp = find_sender(packet, nak.destination_qp);
  if (qp == nullptr) return;
  if (!vouches(*qp, packet.bytes, body.size())) return;
  const Bytes in_flight_before = qp->requester->in_flight();
  const SendProgress progress = qp->requester->on_nak(nak, now - packet.waited, now);
  on_progress(*qp, in_flight_before, progress);
  wake(*qp);
}

}  // namespace pacecar
