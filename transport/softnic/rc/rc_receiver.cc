#include "transport/softnic/rc/rc_receiver.h"

namespace pacecar {

void RcReceiver::on_packet(Instant now, const RxPacket& packet) {
  NicCounters& counters = shared_.core.counters;
  roce::Packet decoded;
  if (!shared_.core.speaks_standard() || packet.elided > 0 ||
      roce::decode(packet.bytes, decoded) != roce::Decoded::kOk) {
    ++counters.malformed;
    return;
  }
  const roce::Kind kind = roce::shape_of(decoded.opcode).kind;
  if (kind == roce::Kind::kDatagram) return on_datagram(packet, decoded);
  RcEnd* end = find_end(packet, decoded);
  if (end == nullptr || !shared_.packets.verify_icrc(packet)) return;
  // Congestion notifications belong to both services.
  const bool fits_service = kind == roce::Kind::kCnp || decoded.unreliable != end->reliable();
  if (!fits_service) {
    ++counters.malformed;
    return;
  }
  if (packet.ecn == Ecn::kCongestion) end->notify_congestion(now);
  switch (kind) {
    case roce::Kind::kSend:
    case roce::Kind::kWrite:
    case roce::Kind::kReadRequest:
    case roce::Kind::kAtomic: end->on_request(decoded, now); break;
    case roce::Kind::kCnp: end->requester().on_congestion(); break;
    default: end->on_answer(decoded, now - packet.waited, now); break;
  }
}

RcEnd* RcReceiver::find_end(const RxPacket& packet, const roce::Packet& decoded) {
  NicCounters& counters = shared_.core.counters;
  RcEnd* end = shared_.ends[shared_.core.slot_of(decoded.destination_qp)];
  if (end == nullptr || end->queue_pair().local.queue_pair != decoded.destination_qp ||
      !end->accepts()) {
    ++counters.unknown_queue_pair;
    return nullptr;
  }
  if (packet.source->ip != end->queue_pair().remote.address.ip) {
    ++counters.wrong_source;
    return nullptr;
  }
  return end;
}

void RcReceiver::on_datagram(const RxPacket& packet, const roce::Packet& datagram) {
  DatagramEnd* end = datagrams_.find(datagram.destination_qp);
  if (end == nullptr) {
    ++shared_.core.counters.unknown_queue_pair;
  } else if (shared_.packets.verify_icrc(packet)) {
    end->on_packet(packet, datagram);
  }
}

}  // namespace pacecar
