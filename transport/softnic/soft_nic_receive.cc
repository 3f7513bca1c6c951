// The part of SoftNic that takes packets in. Everything in them is a stranger's data until the
// queue pair, the source and the trailer have been found right.
#include "transport/softnic/soft_nic.h"
#include "transport/wire/extended.h"

namespace pacecar {

// Flattened, as transmit_queue_pair is: what happens to every packet is one piece of code, although
// packets that travel joined take the same steps elsewhere.
[[gnu::flatten]] void SoftNic::on_packets(Instant now, std::span<const RxPacket> packets) {
  for (const RxPacket& packet : packets) {
    if (packet.trimmed) {
      on_trimmed(now, packet);
      continue;
    }
    const wire::PacketKind kind = wire::classify(packet.bytes);
    if (kind == wire::PacketKind::kData && wire::stands_alone(packet.bytes)) {
      on_data(now, packet);
    } else {
      take_apart(now, packet);
    }
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

// The connected queue pair that a packet names, if it is one of the extended mode and the packet
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

// Beside what the responder finds: whether this packet by itself calls for an acknowledgement.
bool SoftNic::ack_at_once(QueuePair& qp, const wire::DataHeader& header) const {
  if (!qp.responder->in_order()) {
    qp.ack_owed |= header.ack_request;
    return header.ack_request || config_.ack.out_of_order_at_once || config_.ack.every_packet;
  }
  if (qp.ack_owed) {  // all that was missing when it was asked for is here
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
  }
  arrival.bytes += data.bytes();
  arrivals_.add(flow);
}

void SoftNic::on_data(Instant now, const RxPacket& packet) {
  Responder::Data data{.packet = packet, .arrival = now - packet.waited};
  const wire::DataHeader& header = data.header;
  if (!wire::decode(body_of(packet.bytes), data.header, data.payload) ||
      (packet.elided > 0 && (header.taken_back || data.bytes() > header.length))) {
    ++counters_.malformed;
    return;
  }
  QueuePair* qp = find_sender(packet, header.destination_qp);
  if (qp == nullptr) return;
  if (!vouches(*qp, packet.bytes, wire::kDataHeaderBytes)) return;
  if (enciphers_) data.payload = {opened_.data(), data.payload.size()};
  if (received_.full()) {
    ++counters_.completions_full;
    return;
  }
  bool at_once = data.marked() || (config_.ack.idle != Duration::max() &&
                                   qp->responder->idle_since(data.arrival - config_.ack.idle));
  switch (qp->responder->on_data(data, memory_)) {
    case Responder::Outcome::kCompleted:
      received_.push(Completion{.bytes = header.length,
                                .queue_pair = qp->local.queue_pair,
                                .immediate = header.immediate,
                                .kind = CompletionKind::kReceived});
      [[fallthrough]];
    case Responder::Outcome::kPlaced:
      ++counters_.data_packets_received;
      counters_.data_bytes_received += data.bytes();
      counters_.silent_packets_received += header.opcode == wire::Opcode::kWrite ? 1 : 0;
      counters_.marked_packets += data.marked() ? 1 : 0;
      if (tell_arrivals_ && qp->config.paced) note_arrival(qp->config.flow, data);
      qp->unacknowledged_bytes += data.bytes();
      ++qp->unacknowledged_packets;
      at_once |= ack_at_once(*qp, header);
      break;
    case Responder::Outcome::kDuplicate:
      ++counters_.duplicates;
      at_once = true;
      break;
    case Responder::Outcome::kOutOfWindow:
      ++counters_.out_of_window;
      return;
    case Responder::Outcome::kRefused:
      ++counters_.access_errors;
      refuse(*qp, header, wire::Syndrome::kRemoteAccessError);
      at_once = qp->responder->ack_due();
      if (!at_once) return;
      break;
  }
  want_ack(*qp, now, at_once);
}

// What a switch has left of a packet: nothing vouches for it. The answer makes the sender repeat a
// packet at worst.
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
