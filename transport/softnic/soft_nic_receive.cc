// The part of SoftNic that takes packets in. Everything in them is a stranger's data until the
// queue pair, the source and the checksum have been found right.
#include "transport/softnic/slab.h"
#include "transport/softnic/soft_nic.h"
#include "transport/wire/extended.h"

namespace pacecar {

void SoftNic::on_packets(Instant now, std::span<const RxPacket> packets) {
  for (const RxPacket& packet : packets) {
    switch (wire::classify(packet.bytes)) {
      case wire::PacketKind::kData:
        on_data(now, packet);
        break;
      case wire::PacketKind::kAck:
        on_ack(now, packet);
        break;
      case wire::PacketKind::kNak:
        on_nak(packet);
        break;
      case wire::PacketKind::kMalformed:
        ++counters_.malformed;
        break;
    }
  }
}

// The connected queue pair that a packet names, if the packet comes from its peer.
QueuePair* SoftNic::find_sender(const RxPacket& packet, uint32_t queue_pair) {
  QueuePair* qp = find(queue_pair);
  if (qp == nullptr || qp->state != QueuePair::State::kConnected) {
    ++counters_.unknown_queue_pair;
    return nullptr;
  }
  if (packet.source->ip != qp->remote.address.ip) {
    ++counters_.wrong_source;
    return nullptr;
  }
  return qp;
}

void SoftNic::on_data(Instant now, const RxPacket& packet) {
  wire::DataHeader header;
  std::span<const uint8_t> payload;
  if (!wire::decode(packet.bytes, header, payload)) {
    ++counters_.malformed;
    return;
  }
  QueuePair* qp = find_sender(packet, header.destination_qp);
  if (qp == nullptr) return;
  if (!wire::verify_checksum(packet.bytes, wire::kDataHeaderBytes, qp->coverage)) {
    ++counters_.bad_checksum;
    return;
  }
  if (received_.full()) {
    ++counters_.completions_full;
    return;
  }
  const bool marked = packet.ecn == Ecn::kCongestion;
  bool ack_at_once = marked || header.ack_request;
  switch (qp->responder->on_data(header, payload, marked, now - packet.waited, memory_)) {
    case Responder::Outcome::kCompleted:
      received_.push(Completion{.bytes = header.length,
                                .queue_pair = qp->local.queue_pair,
                                .immediate = header.immediate,
                                .kind = CompletionKind::kReceived});
      [[fallthrough]];
    case Responder::Outcome::kPlaced:
      ++counters_.data_packets_received;
      counters_.data_bytes_received += payload.size();
      counters_.marked_packets += marked ? 1 : 0;
      qp->unacknowledged_bytes += payload.size();
      ++qp->unacknowledged_packets;
      if (!qp->responder->in_order()) ack_at_once = true;
      break;
    case Responder::Outcome::kDuplicate:
      ++counters_.duplicates;
      ack_at_once = true;
      break;
    case Responder::Outcome::kOutOfWindow:
      ++counters_.out_of_window;
      return;
    case Responder::Outcome::kRefused:
      ++counters_.access_errors;
      ack_at_once = true;
      qp->nak_due = true;
      qp->nak = wire::Nak{.destination_qp = qp->remote.queue_pair, .psn = header.psn};
      break;
  }
  want_ack(*qp, now, ack_at_once);
}

void SoftNic::on_ack(Instant now, const RxPacket& packet) {
  wire::AckHeader ack;
  wire::Bitmap bitmap;
  if (!wire::decode(packet.bytes, ack, bitmap)) {
    ++counters_.malformed;
    return;
  }
  QueuePair* qp = find_sender(packet, ack.destination_qp);
  if (qp == nullptr) return;
  if (!wire::verify_checksum(packet.bytes, packet.bytes.size() - wire::kChecksumBytes,
                             wire::Coverage::kFull)) {
    ++counters_.bad_checksum;
    return;
  }
  ++counters_.acks_received;
  const Bytes in_flight_before = qp->requester->in_flight();
  const Requester::Progress progress = qp->requester->on_ack(ack, bitmap, now - packet.waited, now);
  if (qp->config.paced) {
    Flow& flow = flows_[qp->config.flow];
    flow.in_flight -= in_flight_before - qp->requester->in_flight();
    add_signal(*qp, progress);
  }
  events_.add(slot_of(*qp));
  arm_timeout(*qp);
  wake(*qp);
}

void SoftNic::on_nak(const RxPacket& packet) {
  wire::Nak nak;
  if (!wire::decode(packet.bytes, nak)) {
    ++counters_.malformed;
    return;
  }
  QueuePair* qp = find_sender(packet, nak.destination_qp);
  if (qp == nullptr) return;
  if (!wire::verify_checksum(packet.bytes, packet.bytes.size() - wire::kChecksumBytes,
                             wire::Coverage::kFull)) {
    ++counters_.bad_checksum;
    return;
  }
  const Bytes in_flight_before = qp->requester->in_flight();
  qp->requester->on_nak(nak);
  if (qp->config.paced) {
    flows_[qp->config.flow].in_flight -= in_flight_before - qp->requester->in_flight();
  }
  wake(*qp);
}

}  // namespace pacecar
