#include "transport/softnic/extended/extended_receiver.h"

#include <algorithm>

namespace pacecar {
namespace {

// How long after the newest packet of a write the place of the next is predicted.
constexpr Duration kPatience = Duration::from_ms(1);
constexpr size_t kMostJoined = 256;     // most packets of one received burst
constexpr size_t kMostRefusals = 1024;  // that wait to be sent

}  // namespace

ExtendedReceiver::ExtendedReceiver(ExtendedShared& shared, OnOther on_other)
    : shared_(shared),
      core_(shared.core),
      on_other_(std::move(on_other)),
      answers_pauses_(core_.config.ack.idle != Duration::max()),
      refusals_(std::min<size_t>(core_.config.completions, kMostRefusals)),
      opened_(shared.enciphers ? wire::kMaxDatagramBytes : 0),
      in_place_bytes_(core_.config.in_place_bytes > 0 && !shared.enciphers
                          ? core_.config.in_place_bytes
                          : ~Bytes{0}),
      follower_(static_cast<uint32_t>(core_.config.burst_bytes / core_.config.mtu), kPatience) {
  if (core_.config.in_place_bytes > 0) {  // for all packets of a joined datagram
    misplaced_.reserve(kMostJoined);
    reassembled_.reserve(wire::kMaxDatagramBytes);
  }
}

ExtendedEnd* ExtendedReceiver::find(uint32_t queue_pair) const {
  ExtendedEnd* end = shared_.ends[core_.slot_of(queue_pair)];
  return end != nullptr && end->queue_pair().local.queue_pair == queue_pair ? end : nullptr;
}

// The prediction holds only for the next packets that arrive.
Placement ExtendedReceiver::predict(Instant now) {
  const WriteFollower::Write* write = follower_.predicted(now);
  if (write == nullptr) return {};
  ExtendedEnd* end = find(write->queue_pair);
  if (end == nullptr || !end->queue_pair().connected()) return {};
  const Bytes left = end->responder().left_of(write->msn, write->psn);
  if (left == 0) return {};
  predicted_ = *write;
  return {.place = core_.memory.writable(write->key, write->address, left),
          .bytes = left,
          .payload_bytes = write->payload,
          .header_bytes = wire::kDataHeaderBytes,
          .trailer_bytes = shared_.trailer_bytes};
}

// Whether the placed payload is at the addresses in the packets' headers.
bool ExtendedReceiver::as_predicted(std::span<const RxPacket> packets) const {
  uint64_t address = predicted_.address;
  for (const RxPacket& packet : packets) {
    if (packet.placed.empty()) return true;  // later ones are not placed either
    if (!wire::names(packet.bytes, predicted_.queue_pair, predicted_.key, address)) return false;
    address += packet.placed.size();
  }
  return true;
}

// Copies misplaced payload away before any payload is placed.
void ExtendedReceiver::reassemble(std::span<const RxPacket> packets) {
  misplaced_.assign(packets.begin(), packets.end());
  size_t bytes = 0;
  for (const RxPacket& packet : packets) bytes += packet.bytes.size() + packet.placed.size();
  reassembled_.resize(bytes);
  auto to = reassembled_.begin();
  for (RxPacket& packet : misplaced_) {
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

// Flattened, as ExtendedEnd::transmit, so that the code per packet is inlined here, although
// split_datagram calls the same functions.
[[gnu::flatten]] void ExtendedReceiver::on_packets(Instant now, std::span<const RxPacket> packets) {
  if (!packets.empty() && !packets[0].placed.empty() && !as_predicted(packets)) {
    reassemble(packets);
    packets = misplaced_;
  }
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
    const auto others = packets.subspan(i + 1);
    i += packet.placed.empty() ? on_same_write<false>(now, *end, packet, others)
                               : on_same_write<true>(now, *end, packet, others);
  }
}

void ExtendedReceiver::split_datagram(Instant now, const RxPacket& datagram) {
  RxPacket packet = datagram;
  std::span<const uint8_t> rest = datagram.bytes;
  do {
    const wire::PacketKind kind = wire::classify(rest);
    packet.bytes = wire::take_first(rest, kind, shared_.trailer_bytes);
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
        on_other_(now, packet);
        break;
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
                                  size_t header_bytes, std::span<const uint8_t> placed) {
  const auto payload = placed.empty() ? shared_.body_of(packet).subspan(header_bytes) : placed;
  switch (guard.open(packet.first(header_bytes), payload, packet.last(shared_.trailer_bytes),
                     opened_.data())) {
    case PacketGuard::Verdict::kGood:
      return true;
    case PacketGuard::Verdict::kForged:
      ++core_.counters.forged;
      break;
    case PacketGuard::Verdict::kReplayed:
      ++core_.counters.replayed;
      break;
  }
  return false;
}

void ExtendedReceiver::refuse(const QueuePair& qp, const wire::DataHeader& header,
                              wire::Syndrome syndrome) {
  refusals_.push({qp.local.queue_pair, wire::Nak{.destination_qp = qp.remote.queue_pair,
                                                 .psn = header.psn,
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
  if (!packet.placed.empty()) data.payload = packet.placed;
  const bool apart = packet.elided > 0 || !packet.placed.empty();
  if (!decoded || (apart && (header.taken_back || data.bytes() > header.length))) {
    ++core_.counters.malformed;
    return nullptr;
  }
  ExtendedEnd* end = find_sender(packet, header.destination_qp);
  if (end == nullptr) return nullptr;
  if (!verify(*end, packet.bytes, wire::kDataHeaderBytes, packet.placed)) return nullptr;
  if (shared_.enciphers) data.payload = {opened_.data(), data.payload.size()};
  return place(*end, now, data);
}

// Whether this is the first packet after a pause, which is acknowledged at once (AckPolicy::idle).
bool ExtendedReceiver::after_pause(ExtendedEnd& end, const Responder::Data& data) const {
  return answers_pauses_ && end.responder().idle_since(data.arrival - core_.config.ack.idle);
}

// Counts a packet that has been placed. True: it must be acknowledged at once.
bool ExtendedReceiver::count_placed(ExtendedEnd& end, Instant now, const Responder::Data& data) {
  QueuePair& qp = end.queue_pair();
  const Bytes bytes = data.bytes();
  ++core_.counters.data_packets_received;
  core_.counters.data_bytes_received += bytes;
  if (data.header.opcode == wire::Opcode::kWrite) ++core_.counters.silent_packets_received;
  if (data.marked()) ++core_.counters.marked_packets;
  if (data.header.length >= in_place_bytes_) {
    follower_.on_packet(data.header, bytes, now);
  }
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
      at_once |= count_placed(end, now, data);
      break;
    case Responder::Outcome::kPlaced:
      at_once |= count_placed(end, now, data);
      followed = &end;
      break;
    case Responder::Outcome::kDuplicate:
      core_.counters.duplicates += header.taken_back ? 0 : 1;  // else it is a probe
      at_once = true;
      break;
    case Responder::Outcome::kOutOfWindow:
      ++core_.counters.out_of_window;
      return nullptr;
    case Responder::Outcome::kRefused:
      ++core_.counters.access_errors;
      refuse(end.queue_pair(), header, wire::Syndrome::kRemoteAccessError);
      at_once = end.responder().ack_due();
      if (!at_once) return nullptr;
      break;
  }
  core_.acks.request(end.queue_pair(), now, at_once);
  return followed;
}

// Takes the leading packets that belong to the same write as `first`, which has just been placed,
// and returns how many. Each is checked like any other packet, but common fields are looked up
// once.
template <bool kPlaced>
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
        !same_ip(*packet.source, end.queue_pair().remote.address) ||
        (kPlaced && packet.placed.empty())) {
      return i;
    }
    std::span<const uint8_t> placed;
    if constexpr (kPlaced) payload = placed = packet.placed;
    const bool apart = kPlaced || packet.elided > 0;
    if (apart && payload.size() + packet.elided > header.length) return i;
    if (!verify(end, packet.bytes, wire::kDataHeaderBytes, placed)) continue;
    const Responder::Data data{
        .packet = packet,
        .arrival = now - packet.waited,
        .header = header,
        .payload =
            shared_.enciphers ? std::span<const uint8_t>(opened_.data(), payload.size()) : payload};
    bool at_once = data.marked() || after_pause(end, data);
    if (!end.responder().on_same_write(data, target, kPlaced)) {
      if (place(end, now, data) == nullptr) return i + 1;
      continue;
    }
    at_once |= count_placed(end, now, data);
    // An acknowledgement that waits is scheduled already.
    if (waits && !at_once && !core_.acks.much_unacknowledged(end.queue_pair())) continue;
    core_.acks.request(end.queue_pair(), now, at_once);
    waits |= !at_once;
  }
  return packets.size();
}

// A trimmed packet is not authenticated. At worst, a forged one makes the sender retransmit a
// packet.
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
      refuse(end->queue_pair(), header, wire::Syndrome::kTrimmed);
      break;
    case Arrival::kDuplicate:
      ++core_.counters.duplicates;
      core_.acks.request(end->queue_pair(), now, true);
      break;
    case Arrival::kOutOfWindow:
      ++core_.counters.out_of_window;
      break;
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
