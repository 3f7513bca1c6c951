#include "transport/softnic/extended/extended_receiver.h"

#include <algorithm>

namespace pacecar {
namespace {

constexpr size_t kMostRefusals = 1024;  // that wait to be sent

}  // namespace

ExtendedReceiver::ExtendedReceiver(ExtendedShared& shared, OnOther on_other)
    : shared_(shared),
      core_(shared.core),
      on_other_(std::move(on_other)),
      answers_pauses_(core_.config.ack.idle != Duration::max()),
      refusals_(std::min<size_t>(core_.config.completions, kMostRefusals)),
      opened_(shared.enciphers ? wire::kMaxDatagramBytes : 0) {}

ExtendedEnd* ExtendedReceiver::find(uint32_t queue_pair) const {
  ExtendedEnd* end = shared_.ends[core_.slot_of(queue_pair)];
  return end != nullptr && end->queue_pair().local.queue_pair == queue_pair ? end : nullptr;
}

// Flattened, as ExtendedEnd::transmit, so that the code per packet is inlined here, although
// split_datagram calls the same functions.
[[gnu::flatten]] void ExtendedReceiver::on_packets(Instant now, std::span<const RxPacket> packets) {
  for (size_t i = 0; i < packets.size(); ++i) {
    const RxPacket& packet = packets[i];
    if (packet.trimmed) {
      on_trimmed(now, packet);
      continue;
    }
    const wire::PacketKind kind = wire::classify(packet.bytes);
    if (kind != wire::PacketKind::kData || !wire::stands_alone(packet.bytes)) {
      split_datagram(now, packet);
      continue;
    }
    ExtendedEnd* const end = on_data(now, packet);
    if (end == nullptr) continue;
    i += on_same_write(now, *end, packet, packets.subspan(i + 1));
  }
}

void ExtendedReceiver::split_datagram(Instant now, const RxPacket& datagram) {
  RxPacket packet = datagram;
  std::span<const uint8_t> rest = datagram.bytes;
  do {
    const wire::PacketKind kind = wire::classify(rest);
    packet.bytes = wire::take_first(rest, kind, shared_.trailer_bytes);
    switch (kind) {
      case wire::PacketKind::kData: on_data(now, packet); break;
      case wire::PacketKind::kAck: on_ack(now, packet); break;
      case wire::PacketKind::kNak: on_nak(now, packet); break;
      case wire::PacketKind::kMalformed: on_other_(now, packet); break;
    }
  } while (!rest.empty());
}

// The end to which a packet is addressed, if the packet comes from its peer.
ExtendedEnd* ExtendedReceiver::find_sender(const RxPacket& packet, uint32_t queue_pair) {
  ExtendedEnd* end = find(queue_pair);
  if (end == nullptr || !end->queue_pair().connected()) {
    ++core_.counters.unknown_queue_pair;
    return nullptr;
  }
  if (!same_ip(*packet.source, end->queue_pair().remote.address)) {
    ++core_.counters.wrong_source;
    return nullptr;
  }
  return end;
}

bool ExtendedReceiver::verify_tag(PacketGuard& guard, std::span<const uint8_t> packet,
                                  size_t header_bytes) {
  const auto payload = shared_.body_of(packet).subspan(header_bytes);
  switch (guard.open(packet.first(header_bytes), payload, packet.last(shared_.trailer_bytes),
                     opened_.data())) {
    case PacketGuard::Verdict::kGood: return true;
    case PacketGuard::Verdict::kForged: ++core_.counters.forged; break;
    case PacketGuard::Verdict::kReplayed: ++core_.counters.replayed; break;
  }
  return false;
}

void ExtendedReceiver::refuse(const QueuePair& qp, const wire::DataHeader& header,
                              wire::Syndrome syndrome, uint32_t psn) {
  refusals_.push({qp.local.queue_pair, wire::Nak{.destination_qp = qp.remote.queue_pair,
                                                 .psn = psn,
                                                 .echo_timestamp = header.timestamp,
                                                 .syndrome = syndrome}});
}

void ExtendedReceiver::report_arrival(FlowId flow, const Responder::Data& data) {
  FlowArrival& arrival = core_.scheduler.flows()[flow].arrival;
  const uint32_t transit = static_cast<uint32_t>(data.arrival.ns()) - data.header.timestamp;
  if (arrival.bytes == 0 || static_cast<int32_t>(transit - arrival.transit_ns) < 0) {
    arrival.transit_ns = transit;
    arrival.timed_bytes = static_cast<uint32_t>(data.bytes());
  }
  core_.scheduler.flows().on_arrived(flow, data.bytes());
}

ExtendedEnd* ExtendedReceiver::on_data(Instant now, const RxPacket& packet) {
  Responder::Data data{.packet = packet, .arrival = now - packet.waited};
  const wire::DataHeader& header = data.header;
  const bool decoded = wire::decode(shared_.body_of(packet.bytes), data.header, data.payload);
  if (!decoded || (packet.elided > 0 && (header.taken_back || data.bytes() > header.length))) {
    ++core_.counters.malformed;
    return nullptr;
  }
  ExtendedEnd* end = find_sender(packet, header.destination_qp);
  if (end == nullptr) return nullptr;
  const size_t header_bytes = header.pieces == 0 ? wire::kDataHeaderBytes : wire::kPieceHeaderBytes;
  if (!verify(*end, packet.bytes, header_bytes)) return nullptr;
  if (header.question) {
    refuse(end->queue_pair(), header, wire::Syndrome::kQuestion,
           static_cast<uint32_t>(packet.bytes.size()));
    return nullptr;
  }
  if (shared_.enciphers) data.payload = {opened_.data(), data.payload.size()};
  return place(*end, now, data);
}

// Whether this is the first packet after a pause, which is acknowledged at once (AckPolicy::idle).
bool ExtendedReceiver::after_pause(ExtendedEnd& end, const Responder::Data& data) const {
  return answers_pauses_ && end.responder().idle_since(data.arrival - core_.config.ack.idle);
}

// Counts a packet that has been placed. True: it must be acknowledged at once.
bool ExtendedReceiver::count_placed(ExtendedEnd& end, const Responder::Data& data) {
  QueuePair& qp = end.queue_pair();
  const Bytes bytes = data.bytes();
  ++core_.counters.data_packets_received;
  core_.counters.data_bytes_received += bytes;
  if (data.header.opcode == wire::Opcode::kWrite) ++core_.counters.silent_packets_received;
  if (data.marked()) ++core_.counters.marked_packets;
  if (core_.scheduler.flows().reports_arrivals() && qp.config.paced)
    report_arrival(qp.config.flow, data);
  qp.unacknowledged_bytes += bytes;
  ++qp.unacknowledged_packets;
  return end.ack_at_once(data.header);
}

ExtendedEnd* ExtendedReceiver::place(ExtendedEnd& end, Instant now, const Responder::Data& data) {
  const wire::DataHeader& header = data.header;
  if (core_.received.full()) {
    ++core_.counters.completions_full;
    return nullptr;
  }
  ExtendedEnd* followed = nullptr;
  bool at_once = data.marked() || after_pause(end, data);
  switch (end.responder().on_data(data, core_.memory)) {
    case Responder::Outcome::kCompleted:
      core_.received.push(Completion{.bytes = header.length,
                                     .queue_pair = end.queue_pair().local.queue_pair,
                                     .immediate = header.immediate,
                                     .kind = CompletionKind::kReceived});
      at_once |= count_placed(end, data);
      break;
    case Responder::Outcome::kPlaced:
      at_once |= count_placed(end, data);
      followed = header.pieces == 0 ? &end : nullptr;
      break;
    case Responder::Outcome::kPiece: count_placed(end, data); return nullptr;
    case Responder::Outcome::kDuplicate:
      core_.counters.duplicates += header.taken_back ? 0 : 1;  // else it is a probe
      at_once = true;
      break;
    case Responder::Outcome::kOutOfWindow: ++core_.counters.out_of_window; return nullptr;
    case Responder::Outcome::kRefused:
      ++core_.counters.access_errors;
      refuse(end.queue_pair(), header, wire::Syndrome::kRemoteAccessError, header.psn);
      at_once = end.responder().ack_due();
      if (!at_once) return nullptr;
      break;
  }
  core_.acks.request(end.queue_pair(), now, at_once);
  return followed;
}

// Takes the leading packets of the same write as `first`, which has just been placed, and returns
// how many. Each is checked like any other packet, but common fields are looked up once.
size_t ExtendedReceiver::on_same_write(Instant now, ExtendedEnd& end, const RxPacket& first,
                                       std::span<const RxPacket> packets) {
  const auto like = first.bytes.first<wire::kDataHeaderBytes>();
  wire::DataHeader header;
  std::span<const uint8_t> payload;
  if (packets.empty() || !wire::same_write(packets.front().bytes, like) || core_.received.full() ||
      !wire::decode(shared_.body_of(first.bytes), header, payload) || header.taken_back) {
    return 0;
  }
  const Responder::Target target = end.responder().target_of(header, core_.memory);
  bool waits = false;
  for (size_t i = 0; i < packets.size(); ++i) {
    const RxPacket& packet = packets[i];
    if (packet.trimmed ||
        !wire::decode_alike(shared_.body_of(packet.bytes), like, header, payload) ||
        !same_ip(*packet.source, end.queue_pair().remote.address)) {
      return i;
    }
    if (packet.elided > 0 && payload.size() + packet.elided > header.length) return i;
    if (!verify(end, packet.bytes, wire::kDataHeaderBytes)) continue;
    const Responder::Data data{
        .packet = packet,
        .arrival = now - packet.waited,
        .header = header,
        .payload =
            shared_.enciphers ? std::span<const uint8_t>(opened_.data(), payload.size()) : payload};
    bool at_once = data.marked() || after_pause(end, data);
    if (!end.responder().on_same_write(data, target)) {
      if (place(end, now, data) == nullptr) return i + 1;
      continue;
    }
    at_once |= count_placed(end, data);
    // An acknowledgement that waits is scheduled already.
    if (waits && !at_once && !core_.acks.much_unacknowledged(end.queue_pair())) continue;
    core_.acks.request(end.queue_pair(), now, at_once);
    waits |= !at_once;
  }
  return packets.size();
}

// A trimmed packet is not authenticated: at worst a forged one makes the sender retransmit.
void ExtendedReceiver::on_trimmed(Instant now, const RxPacket& packet) {
  wire::DataHeader header;
  if (!wire::decode_trimmed(packet.bytes, header)) {
    ++core_.counters.malformed;
    return;
  }
  ExtendedEnd* end = find_sender(packet, header.destination_qp);
  if (end == nullptr) return;
  switch (end->responder().on_trimmed(header)) {
    case Arrival::kNew:
      ++core_.counters.trimmed_packets;
      core_.counters.trimmed_in_core += packet.trimmed_in_core ? 1 : 0;
      refuse(end->queue_pair(), header, wire::Syndrome::kTrimmed, header.psn);
      break;
    case Arrival::kDuplicate:
      ++core_.counters.duplicates;
      core_.acks.request(end->queue_pair(), now, true);
      break;
    case Arrival::kOutOfWindow: ++core_.counters.out_of_window; break;
  }
}

void ExtendedReceiver::on_ack(Instant now, const RxPacket& packet) {
  wire::AckHeader ack;
  wire::Bitmap bitmap;
  wire::TelemetryView telemetry;
  const auto body = shared_.body_of(packet.bytes);
  if (!wire::decode(body, ack, bitmap, telemetry)) {
    ++core_.counters.malformed;
    return;
  }
  ExtendedEnd* end = find_sender(packet, ack.destination_qp);
  if (end == nullptr) return;
  if (!verify(*end, packet.bytes, body.size())) return;
  QueuePair& qp = end->queue_pair();
  ++core_.counters.acks_received;
  const Bytes in_flight_before = end->requester().in_flight();
  const SendProgress progress = end->requester().on_ack(ack, bitmap, now - packet.waited, now);
  if (qp.config.paced) {
    FlowSignal& signal = core_.scheduler.flows()[qp.config.flow].signal;
    signal.echo_marked = ack.echo_valid && ack.echo_marked;
    signal.hops = ack.echo_valid ? static_cast<uint8_t>(telemetry.hops()) : 0;
    for (size_t i = 0; i < signal.hops; ++i) signal.telemetry[i] = telemetry[i];
  }
  end->on_progress(in_flight_before, progress);
  core_.events.add(qp.slot);
  core_.timers.arm(qp.slot, end->deadline());
  core_.scheduler.wake(qp);
}

void ExtendedReceiver::on_nak(Instant now, const RxPacket& packet) {
  wire::Nak nak;
  const auto body = shared_.body_of(packet.bytes);
  if (!wire::decode(body, nak)) {
    ++core_.counters.malformed;
    return;
  }
  ExtendedEnd* end = find_sender(packet, nak.destination_qp);
  if (end == nullptr) return;
  if (!verify(*end, packet.bytes, body.size())) return;
  if (nak.syndrome == wire::Syndrome::kQuestion) return end->on_answer(nak, now);
  const Bytes in_flight_before = end->requester().in_flight();
  const SendProgress progress = end->requester().on_nak(nak, now - packet.waited, now);
  end->on_progress(in_flight_before, progress);
  core_.scheduler.wake(end->queue_pair());
}

size_t ExtendedReceiver::transmit_refusals(std::span<TxPacket> out) {
  size_t count = 0;
  while (!refusals_.empty() && count < out.size() &&
         core_.slab.room() >= wire::kNakBytes + shared_.trailer_bytes) {
    const auto& [number, nak] = refusals_.front();
    if (ExtendedEnd* end = find(number)) out[count++] = end->refusal(nak);
    refusals_.pop_front();
  }
  return count;
}

}  // namespace pacecar
