// The part of SoftNic that makes packets of extended mode: a first burst of data, then control
// writes, acknowledgements and more data, as pacing and windows allow.
#include <algorithm>
#include <limits>
#include <utility>

#include "transport/softnic/soft_nic.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

// How much earlier than its deadline an acknowledgement leaves right after a burst of data.
constexpr Duration kInPassing = Duration::from_us(40);
// The duration of a polling turn, after which two packets of a fast flow may leave at once.
constexpr Duration kTurn = Duration::from_us(1);
// An acknowledgement joins data once it has waited 1/6 of AckPolicy::delay.
constexpr int64_t kEarlyJoin = 6;

}  // namespace

size_t SoftNic::poll_transmit(Instant now, std::span<TxPacket> packets) {
  slab_.clear();
  size_t count = 0;
  if (config_.control_first) {
    count = transmit_control(now, packets);
    count += transmit_acks(now, now, packets.subspan(count));
    return count + transmit_flows(now, packets.subspan(count));
  }
  // A burst of data goes first, because the application waits for it; acknowledgements are sent
  // while the peer processes the burst.
  if (!flows_.ready().empty()) count = transmit_flow(flows_.ready().take(), now, packets);
  const bool in_passing = count > 0;
  count += transmit_control(now, packets.subspan(count));
  count += transmit_acks(in_passing ? now + kInPassing : now, now, packets.subspan(count));
  return count + transmit_flows(now, packets.subspan(count));
}

// Each ready flow gets a turn of one burst; a flow that stays ready goes to the end.
size_t SoftNic::transmit_flows(Instant now, std::span<TxPacket> packets) {
  size_t count = 0;
  while (count < packets.size() && !flows_.ready().empty() && slab_.room() >= slab_bytes_) {
    count += transmit_flow(flows_.ready().take(), now, packets.subspan(count));
  }
  return count;
}

// The packet of an acknowledgement or a refusal. Their order does not matter, so they take the
// paths in turn, and the failure of one path does not stop them all.
TxPacket SoftNic::answer(QueuePair& qp, std::span<const uint8_t> bytes) const {
  const auto path = static_cast<uint16_t>(qp.answer_path);
  qp.answer_path = qp.answer_path + 1 == config_.paths ? 0 : qp.answer_path + 1;
  return {.header = bytes,
          .payload = {},
          .trailer = {},
          .destination = &qp.remote.address,
          .path = path,
          .traffic_class = TrafficClass::kControl};
}

size_t SoftNic::transmit_naks(std::span<TxPacket> out) {
  size_t count = 0;
  while (!naks_.empty() && count < out.size() && slab_.room() >= wire::kNakBytes + trailer_bytes_) {
    const auto& [id, nak] = naks_.front();
    if (QueuePair* qp = find(id); qp != nullptr) {
      const auto bytes = slab_.take(wire::kNakBytes + trailer_bytes_);
      wire::encode(nak, bytes.first<wire::kNakBytes>());
      finish(*qp, bytes.first(wire::kNakBytes), {}, {}, bytes.last(trailer_bytes_));
      out[count++] = answer(*qp, bytes);
    }
    naks_.pop_front();
  }
  return count;
}

// Sends refusals, and the acknowledgements that are due at `due`.
size_t SoftNic::transmit_acks(Instant due, Instant now, std::span<TxPacket> out) {
  while (!later_.empty() &&
         (quiet_at_ <= now || queue_pairs_[later_.front()]->ack_deadline <= due)) {
    acks_.add(later_.take());
  }
  size_t count = transmit_naks(out);
  while (!acks_.empty() && count < out.size()) {
    QueuePair& qp = *queue_pairs_[acks_.front()];
    if (qp.rc) {
      const size_t answers = transmit_answers(qp, now, out.subspan(count));
      if (answers == 0 && acks_.listed(slot_of(qp))) break;  // no room
      count += answers;
      continue;
    }
    if (slab_.room() < most_ack_bytes(qp)) break;
    const auto ack = take_ack(qp, now);
    if (!ack.empty()) out[count++] = answer(qp, ack);
  }
  return count;
}

// The acknowledgement of all packets that have arrived on a queue pair; empty if none is due. The
// slab must have room for it.
std::span<const uint8_t> SoftNic::take_ack(QueuePair& qp, Instant now) {
  acks_.remove(slot_of(qp));
  later_.remove(slot_of(qp));
  qp.unacknowledged_bytes = 0;
  qp.unacknowledged_packets = 0;
  if (!qp.responder->ack_due()) return {};
  const auto bytes = slab_.take(most_ack_bytes(qp));
  const size_t size = qp.responder->write_ack(qp.remote.queue_pair, now, bytes);
  finish(qp, bytes.first(size), {}, {}, bytes.subspan(size, trailer_bytes_));
  slab_.give_back(bytes.size() - size - trailer_bytes_);
  ++counters_.acks_sent;
  return bytes.first(size + trailer_bytes_);
}

// Whether the acknowledgement of this queue pair is due, or will be soon. With many small packets
// in both directions, an acknowledgement in each packet would cost more than one from time to time.
// With several packets of data it costs next to nothing.
bool SoftNic::worth_joining(uint32_t slot, Instant now, size_t company) const {
  if (acks_.listed(slot)) return true;
  if (!later_.listed(slot)) return false;
  if (company > 1) return true;
  const QueuePair& qp = *queue_pairs_[slot];
  const Instant since = qp.ack_deadline - config_.ack.delay;
  return qp.unacknowledged_packets * 4 >= config_.ack.small_packets * 3 ||
         now - since >= config_.ack.delay / kEarlyJoin;
}

// Takes into the slab the acknowledgements that wait for this peer, and last one control write, if
// they fit into `room` bytes, and returns their bytes. They will leave together with `company`
// packets.
size_t SoftNic::gather(const QueuePair& qp, Instant now, Bytes room, size_t company) {
  size_t bytes = 0;
  QueuePair* word = nullptr;
  uint32_t slot = slot_of(qp);
  do {
    QueuePair& sibling = *queue_pairs_[slot];
    const size_t most = most_ack_bytes(sibling);
    if (worth_joining(slot, now, company) && bytes + most <= std::min<Bytes>(room, slab_.room())) {
      bytes += take_ack(sibling, now).size();
    }
    if (controls_.listed(slot) && &sibling != &qp && sibling.requester->next_passes()) {
      word = &sibling;
    }
    slot = sibling.sibling;
  } while (slot != slot_of(qp));
  if (word != nullptr) bytes += take_word(*word, now, std::min<Bytes>(room, slab_.room()) - bytes);
  return bytes;
}

// Takes the next packet of a queue pair, with its payload, into the slab, and returns its bytes.
size_t SoftNic::take_word(QueuePair& qp, Instant now, Bytes room) {
  if (qp.state != QueuePair::State::kConnected) return 0;
  if (overhead_bytes_ + qp.next_bytes() > room) return 0;
  qp.requester->choose_path(now);
  Requester::Outgoing packet;
  if (!qp.requester->next_packet(now, &packet)) return 0;
  const auto header = slab_.take(wire::kDataHeaderBytes);
  wire::encode(packet.header, header.first<wire::kDataHeaderBytes>());
  const auto payload = slab_.take(packet.payload.size());
  const auto sent = finish(qp, header, packet.payload, payload, slab_.take(trailer_bytes_));
  if (sent.data() != payload.data()) std::ranges::copy(sent, payload.begin());
  ++counters_.data_packets_sent;
  account(qp, now, {.in_flight = 0, .payload = payload.size(), .wire = 0});
  controls_.remove(slot_of(qp));
  wake(qp);
  return overhead_bytes_ + payload.size();
}

// Appends acknowledgements and a control write for this peer to a packet whose trailer is the
// newest piece of the slab. Returns the number of bytes.
size_t SoftNic::join(const QueuePair& qp, Instant now, Bytes room, size_t company) {
  if (room < wire::kJoinedBytes || slab_.room() < wire::kJoinedBytes) return 0;
  const size_t bytes = gather(qp, now, room - wire::kJoinedBytes, company);
  if (bytes == 0) return 0;
  wire::store_be16(static_cast<uint16_t>(bytes), slab_.take(wire::kJoinedBytes).data());
  return bytes + wire::kJoinedBytes;
}

// Full packets have no room for them, so they become a packet behind the burst, unless its last
// packet is shorter than the first: only the last packet of a burst may be.
size_t SoftNic::follow(const QueuePair& qp, Instant now, std::span<const TxPacket> burst,
                       std::span<TxPacket> out) {
  if (qp.rc || out.empty() || burst.back().size() < burst.front().size()) return 0;
  const uint8_t* const begin = slab_.take(0).data();
  const size_t bytes = gather(qp, now, burst.back().size(), burst.size());
  if (bytes == 0) return 0;
  out[0] = {.header = {begin, bytes},
            .payload = {},
            .trailer = {},
            .destination = &qp.remote.address,
            .path = burst.back().path,
            .traffic_class = burst.back().traffic_class};
  return 1;
}

size_t SoftNic::transmit_control(Instant now, std::span<TxPacket> out) {
  size_t count = 0;
  for (size_t left = controls_.size(); left > 0 && count < out.size(); --left) {
    if (controls_.empty()) break;  // the control write has joined another packet
    QueuePair& qp = *queue_pairs_[controls_.take()];
    if (qp.state != QueuePair::State::kConnected) {
      if (qp.state == QueuePair::State::kOpen) count += transmit_datagrams(qp, out.subspan(count));
      continue;
    }
    if (qp.rc && !qp.rc->reliable) {
      on_handed_over(qp);
      continue;
    }
    count += transmit_queue_pair(qp, now, config_.burst_bytes, out.subspan(count));
    wake(qp);
  }
  return count;
}

size_t SoftNic::transmit_flow(uint32_t index, Instant now, std::span<TxPacket> out) {
  Flow& flow = flows_[index];
  const auto timer = static_cast<uint32_t>(queue_pairs_.size()) + index;
  const size_t pairs = flow.slots.size();
  const bool waited = std::exchange(flow.waiting, false);
  for (size_t i = 0; i < pairs; ++i) {
    QueuePair& qp = *queue_pairs_[flow.slots[(flow.turn + i) % pairs]];
    if (qp.state != QueuePair::State::kConnected || !qp.has_work()) continue;
    Bytes budget = room(qp);
    const bool probing = qp.probing();
    // An acknowledgement or a new limit wakes the flow; another queue pair may have a probe to
    // send.
    if (budget == 0 && !probing) continue;
    const Instant next_send = flow.gate.next_send();
    if (next_send > now) {
      timers_.arm(timer, next_send);
      flow.waiting = true;
      if (!probing) continue;
      budget = 0;  // only the probe
    }
    if (waited) flow.gate.excuse(now, kTurn, flow.repaid);
    size_t count = transmit_queue_pair(qp, now, std::min(budget, flow.gate.burst()), out);
    if (count == 0) continue;  // its lost packets have been acknowledged after all
    if (config_.joins_packets) count += follow(qp, now, out.first(count), out.subspan(count));
    flow.turn = (flow.turn + i + 1) % pairs;
    if (waited && !has_work(flow)) flows_.report(index);
    flow.waiting = true;
    make_ready(index);
    return count;
  }
  return 0;
}

bool SoftNic::has_work(const Flow& flow) const {
  return std::ranges::any_of(flow.slots, [&](uint32_t slot) {
    const QueuePair& qp = *queue_pairs_[slot];
    return qp.state == QueuePair::State::kConnected && qp.has_work();
  });
}

// The bytes that the flow's window and credit allow now; no limit if the queue pair is not paced.
// The next packet must fit into the window as a whole; any remaining credit is enough for it.
Bytes SoftNic::room(QueuePair& qp) const {
  if (!qp.config.paced) return std::numeric_limits<Bytes>::max() / 2;
  const FlowGate& gate = flows_[qp.config.flow].gate;
  const Bytes window = gate.window_left(config_.mtu);
  return qp.next_bytes() > window ? 0 : std::min(window, gate.credit_left());
}

// Whether the flow, on credit, can send now. A flow on credit is in flows_.ready() only while it
// can send, because it counts in FlowSignal::sharing; other flows are checked in their turn.
bool SoftNic::can_send_on_credit(const Flow& flow) const {
  return std::ranges::any_of(flow.slots, [&](uint32_t slot) {
    QueuePair& qp = *queue_pairs_[slot];
    return qp.state == QueuePair::State::kConnected && qp.has_work() &&
           (room(qp) > 0 || qp.probing());
  });
}

// The payload of this turn from which on no full packet may follow, by window and credit.
Bytes SoftNic::last_from(const QueuePair& qp) const {
  if (!qp.config.paced) return std::numeric_limits<Bytes>::max();
  const FlowGate& gate = flows_[qp.config.flow].gate;
  const Bytes window = gate.window_left(config_.mtu);
  return window < config_.mtu ? 0 : std::min(window - config_.mtu + 1, gate.credit_left());
}

// Sends at most `budget` bytes of payload, but at least one packet, on one path.
size_t SoftNic::transmit_queue_pair(QueuePair& qp, Instant now, Bytes budget,
                                    std::span<TxPacket> out) {
  if (qp.rc) return transmit_standard(qp, now, budget, out);
  const Bytes in_flight_before = qp.requester->in_flight();
  Requester::Outgoing packet;
  const uint16_t path = qp.requester->choose_path(now);
  const Bytes last_from = this->last_from(qp);
  const bool sparse = qp.config.paced && flows_[qp.config.flow].sparse;
  const Bytes mtu = std::min<Bytes>(config_.mtu, qp.remote.mtu);
  size_t count = sparse ? 0 : transmit_run(qp, now, std::min(budget + 1, last_from), path, out);
  Bytes payload_bytes = count * mtu;
  Bytes wire_bytes = count * (mtu + caps_.packet_overhead);
  while (count < out.size() && slab_.room() >= slab_bytes_ &&
         (count == 0 || payload_bytes + config_.mtu <= budget ||
          payload_bytes + qp.requester->next_bytes() <= budget) &&
         qp.requester->next_packet(now, &packet)) {
    const Bytes then = payload_bytes + packet.payload.size();
    packet.header.ack_request |=
        packet.retransmission || sparse || qp.requester->full() || then >= last_from;
    const size_t sealed = enciphers_ ? packet.payload.size() : 0;
    const auto piece = slab_.take(overhead_bytes_ + sealed);
    const auto header = piece.first<wire::kDataHeaderBytes>();
    const auto trailer = piece.last(trailer_bytes_);
    const size_t joined =
        config_.joins_packets ? join(qp, now, mtu - packet.payload.size(), count + 1) : 0;
    packet.header.joined = joined > 0;
    wire::encode(packet.header, header);
    const auto payload =
        finish(qp, header, packet.payload, piece.subspan(header.size(), sealed), trailer);
    out[count++] = TxPacket{.header = header,
                            .payload = payload,
                            .trailer = {trailer.data(), trailer.size() + joined},
                            .destination = &qp.remote.address,
                            .path = path,
                            .traffic_class = qp.config.traffic_class};
    payload_bytes = then;
    wire_bytes += packet.payload.size() + caps_.packet_overhead + joined;
    counters_.packets_retransmitted += packet.retransmission ? 1 : 0;
  }
  if (count == 0) return 0;
  counters_.data_packets_sent += count;
  account(qp, now,
          {.in_flight = qp.requester->in_flight() - in_flight_before,
           .payload = payload_bytes,
           .wire = wire_bytes});
  return count;
}

// Sends full packets of one write, with less than `below` bytes of payload in all. Their headers
// are made from one pattern, and nothing is joined to them.
inline size_t SoftNic::transmit_run(QueuePair& qp, Instant now, Bytes below, uint16_t path,
                                    std::span<TxPacket> out) {
  if (below <= 2 * config_.mtu || out.size() < 2) return 0;
  const Bytes most =
      std::min({(below - 1) / config_.mtu, Bytes{out.size()}, Bytes{slab_.room() / slab_bytes_}});
  Requester::Outgoing first;
  const uint32_t count = qp.requester->next_run(now, static_cast<uint32_t>(most), &first);
  if (count == 0) return 0;
  const uint8_t* data = first.payload.data();
  const size_t bytes = first.payload.size();
  const size_t sealed = enciphers_ ? bytes : 0;
  std::array<uint8_t, wire::kDataHeaderBytes> pattern;
  wire::encode(first.header, pattern);
  const size_t size = overhead_bytes_ + sealed;
  uint8_t* room = slab_.take(count * size).data();
  for (uint32_t i = 0; i < count; ++i, data += bytes, room += size) {
    const std::span piece(room, size);
    const auto header = piece.first<wire::kDataHeaderBytes>();
    const auto trailer = piece.last(trailer_bytes_);
    wire::encode_alike(pattern, first.header.psn + i, first.header.address + i * bytes, header);
    const auto payload =
        finish(qp, header, {data, bytes}, piece.subspan(header.size(), sealed), trailer);
    out[i] = TxPacket{.header = header,
                      .payload = payload,
                      .trailer = trailer,
                      .destination = &qp.remote.address,
                      .path = path,
                      .traffic_class = qp.config.traffic_class};
  }
  return count;
}

void SoftNic::account(QueuePair& qp, Instant now, const Sent& sent) {
  counters_.data_bytes_sent += sent.payload;
  if (qp.config.paced) {
    Flow& flow = flows_[qp.config.flow];
    flow.gate.on_sent(sent.payload, sent.wire, now);
    flow.gate.on_done(sent.payload -
                      sent.in_flight);  // unequal for packets taken back, and RC's probes
    flows_.report_sharing(qp.config.flow);
  }
  arm_timeout(qp);
}

void SoftNic::join_siblings(QueuePair& qp) {
  const uint32_t slot = slot_of(qp);
  const auto [known, first] = companies_.try_emplace(qp.remote.address, slot);
  qp.sibling = first ? slot : std::exchange(queue_pairs_[known->second]->sibling, slot);
}

void SoftNic::leave_siblings(const QueuePair& qp) {
  const uint32_t slot = slot_of(qp);
  uint32_t before = qp.sibling;
  while (queue_pairs_[before]->sibling != slot) before = queue_pairs_[before]->sibling;
  queue_pairs_[before]->sibling = qp.sibling;
  if (before == slot) {
    companies_.erase(qp.remote.address);
  } else {
    companies_[qp.remote.address] = before;
  }
}

// Takes the round trip from another queue pair with this peer, because the first packets may be
// lost.
void SoftNic::ask_siblings(QueuePair& qp) {
  for (uint32_t slot = qp.sibling; slot != slot_of(qp); slot = queue_pairs_[slot]->sibling) {
    const Duration known = queue_pairs_[slot]->requester->round_trip();
    if (known != Duration()) return qp.requester->expect_round_trip(known);
  }
}

}  // namespace pacecar
