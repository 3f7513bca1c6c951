#include "transport/softnic/extended/extended_end.h"

#include <array>
#include <new>
#include <utility>

#include "transport/base/return_if_error.h"
#include "transport/wire/address.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

// The leading work requests that extended mode can send.
std::span<const WorkRequest> leading_writes(std::span<const WorkRequest> work_requests) {
  const auto end = std::ranges::find_if(work_requests, [](const WorkRequest& work_request) {
    return work_request.opcode > Opcode::kWriteWithImm;
  });
  return {work_requests.begin(), end};
}

uint32_t send_window(const SoftNicConfig& nic, const QueuePairConfig& config) {
  return config.posts ? window_packets(nic, config) : 1;
}

uint32_t work_requests(const QueuePairConfig& config) {
  return config.posts ? config.work_requests : 0;
}

// Control writes keep to one path, so that none overtakes another and the newest arrives last.
PathPolicy path_policy(const SoftNicConfig& nic, const QueuePairConfig& config) {
  if (!config.posts) return PathPolicy::kFixed;
  return config.paced ? nic.path_policy : PathPolicy::kSticky;
}

// The payload of questions. Not const, so that the program's file does not contain it.
constinit std::array<uint8_t, wire::kMaxDatagramBytes> g_nothing{};

// Questions that are due wait for the next poll_transmit.
constexpr Duration kAskAgain = Duration::from_ms(1);

Bytes ip_udp_bytes(const Address& peer) { return is_ipv4(peer) ? 28 : 48; }

Requester::Config requester_config(const SoftNicConfig& nic, const QueuePair& qp) {
  LossRecovery loss = nic.loss;
  if (!qp.config.paced) {  // control writes keep to one path, and are acknowledged late
    loss.reordering = {};
    loss.packet_timeout = {};
  }
  return {
      .peer_queue_pair = qp.remote.queue_pair,
      .first_psn = wide_psn(qp.local.first_psn),
      .window_packets = std::min(send_window(nic, qp.config), qp.remote.window_packets),
      .work_requests = std::min(work_requests(qp.config), qp.remote.writes),
      .mtu = {.payload = std::min(qp.local.mtu, qp.remote.mtu),
              .overhead = wire::kDataHeaderBytes + trailer_bytes(nic.security) +
                          ip_udp_bytes(qp.remote.address),
              .searches = nic.searches_mtu && qp.config.posts},
      .path_policy = path_policy(nic, qp.config),
      .paths = nic.paths,
      .path_seed = uint64_t{qp.local.first_psn} << 32 | qp.id,
      .delay_floor = nic.jitter,
      .loss = loss,
      .silence_limit = nic.silence_limit,
  };
}

}  // namespace

ExtendedShared::ExtendedShared(NicCore& nic)
    : core(nic),
      keys(nic.config, nic.random),
      trailer_bytes(pacecar::trailer_bytes(nic.config.security)),
      overhead_bytes(wire::kDataHeaderBytes + trailer_bytes),
      enciphers(nic.config.security == Security::kEncrypt),
      slab_bytes(overhead_bytes + (enciphers ? nic.config.mtu : 0)),
      ends(nic.queue_pairs.size()) {}

Result<void> ExtendedEnd::connect(ExtendedShared& shared, QueuePair& qp,
                                  const SoftEndpoint& remote) {
  qp.remote = remote;
  // Scopes are numbered per host.
  qp.remote.address.scope_id = shared.core.config.address.scope_id;
  const bool full = qp.local.full_checksum || remote.full_checksum;
  const auto coverage = full ? wire::Coverage::kFull : wire::Coverage::kHeader;
  ASSIGN_OR_RETURN(auto guard, shared.keys.make_guard(qp, coverage));
  qp.end.reset(new ExtendedEnd(shared, qp, std::move(guard), coverage));
  qp.state = QueuePair::State::kConnected;
  return {};
}

QueuePairMemory ExtendedEnd::memory(const ExtendedShared& shared, const QueuePairConfig& config) {
  const SoftNicConfig& nic = shared.core.config;
  const Bytes queues = SendWindow::queue_bytes(send_window(nic, config)) +
                       2 * ReceiveWindow::queue_bytes(window_packets(nic, config));
  const Bytes state = sizeof(QueuePair) + sizeof(ExtendedEnd) +
                      Requester::work_request_bytes(work_requests(config)) +
                      WriteTracker::bytes(config.work_requests) +
                      PathSelector::bytes(path_policy(nic, config), nic.paths) +
                      shared.keys.guard_bytes();
  return config.paced ? QueuePairMemory{state, queues} : QueuePairMemory{state + queues, 0};
}

ExtendedEnd::ExtendedEnd(ExtendedShared& shared, QueuePair& qp, std::unique_ptr<PacketGuard> guard,
                         wire::Coverage coverage)
    : shared_(shared),
      qp_(qp),
      requester_(requester_config(shared.core.config, qp)),
      responder_(qp.local.window_packets, qp.local.writes, wide_psn(qp.remote.first_psn),
                 shared.core.config.mtu),
      guard_(std::move(guard)),
      coverage_(coverage) {
  shared_.ends[qp.slot] = this;
  if (requester_.mtu().deadline() == Instant()) shared_.core.acks.request_now(qp);
  const auto [known, first] = shared_.peers.try_emplace(qp.remote.address, this);
  if (!first) next_sibling_ = std::exchange(known->second->next_sibling_, this);
}

ExtendedEnd::~ExtendedEnd() {
  shared_.ends[qp_.slot] = nullptr;
  ExtendedEnd* before = next_sibling_;
  while (before->next_sibling_ != this) before = before->next_sibling_;
  before->next_sibling_ = next_sibling_;
  if (before == this) {
    shared_.peers.erase(qp_.remote.address);
  } else {
    shared_.peers[qp_.remote.address] = before;
  }
}

size_t ExtendedEnd::post(std::span<const WorkRequest> work_requests) {
  work_requests = leading_writes(work_requests);
  for (const WorkRequest& work_request : work_requests) {
    shared_.core.check_memory(work_request);
    PACECAR_CHECK(work_request.length <= 0xFFFF'FFFF);
  }
  if (requester_.round_trip() == Duration()) learn_round_trip();
  return requester_.post(work_requests);
}

// Takes the round trip from a sibling queue pair, because the first packets may be lost.
void ExtendedEnd::learn_round_trip() {
  for (ExtendedEnd* end = next_sibling_; end != this; end = end->next_sibling_) {
    const Duration known = end->requester_.round_trip();
    if (known != Duration()) return requester_.expect_round_trip(known);
  }
}

void ExtendedEnd::on_progress(Bytes in_flight_before, SendProgress progress) {
  progress.rerouting = requester_.rerouting();
  shared_.core.scheduler.on_progress(qp_, in_flight_before - in_flight(), progress);
}

size_t ExtendedEnd::take_turn(Instant now, bool waited, std::span<TxPacket> out) {
  size_t count = shared_.core.scheduler.turn(*this, now, waited, out);
  if (count > 0 && shared_.core.config.joins_packets) {
    count += follow(now, out.first(count), out.subspan(count));
  }
  return count;
}

size_t ExtendedEnd::transmit_control(Instant now, std::span<TxPacket> out) {
  const size_t count = transmit(now, shared_.core.config.burst_bytes, out);
  shared_.core.scheduler.wake(qp_);
  return count;
}

size_t ExtendedEnd::transmit(Instant now, Bytes budget, std::span<TxPacket> out) {
  NicCore& core = shared_.core;
  const SoftNicConfig& config = core.config;
  const Bytes in_flight_before = requester_.in_flight();
  Requester::Outgoing packet;
  const uint16_t path = requester_.choose_path(now);
  const Bytes last_from = core.scheduler.last_from(qp_);
  const bool sparse = core.scheduler.sparse(qp_);
  const PathMtu& path_mtu = requester_.mtu();
  const Bytes mtu = path_mtu.payload();
  const Bytes overhead = shared_.overhead_bytes + config.wire_overhead_bytes;
  size_t count = sparse ? 0 : transmit_run(now, std::min(budget + 1, last_from), path, out);
  const Bytes run = count == 0 ? 0 : count * out[0].payload.size();
  FlowScheduler::Sent sent{.payload = run, .wire = run + count * overhead};
  const bool divides = mtu < qp_.remote.mtu && mtu < config.mtu;  // packets that have begun larger
  while (count < out.size() && core.slab.room() >= shared_.slab_bytes &&
         (!divides || count == 0 || out.size() - count >= PathMtu::kMostPieces ||
          requester_.next_bytes() <= mtu) &&
         (count == 0 || sent.payload + config.mtu <= budget ||
          sent.payload + requester_.next_bytes() <= budget) &&
         requester_.next_packet(now, &packet)) {
    const Bytes then = sent.payload + packet.payload.size();
    packet.header.ack_request |=
        packet.retransmission || sparse || requester_.full() || then >= last_from;
    core.counters.packets_retransmitted += packet.retransmission ? 1 : 0;
    if (packet.payload.size() > mtu) [[unlikely]] {
      const size_t pieces = transmit_pieces(packet, path, out.subspan(count));
      count += pieces;
      sent.payload = then;
      sent.wire += packet.payload.size() + pieces * overhead;
      continue;
    }
    const size_t sealed = shared_.enciphers ? packet.payload.size() : 0;
    const auto piece = core.slab.take(shared_.overhead_bytes + sealed);
    const auto header = piece.first<wire::kDataHeaderBytes>();
    const auto trailer = piece.last(shared_.trailer_bytes);
    const size_t joined =
        config.joins_packets ? join(now, mtu - packet.payload.size(), count + 1) : 0;
    packet.header.joined = joined > 0;
    wire::encode(packet.header, header);
    const auto payload =
        seal(header, packet.payload, piece.subspan(header.size(), sealed), trailer);
    out[count++] = TxPacket{.header = header,
                            .payload = payload,
                            .trailer = {trailer.data(), trailer.size() + joined},
                            .destination = &qp_.remote.address,
                            .path = path,
                            .traffic_class = qp_.config.traffic_class,
                            .alone = path_mtu.one_by_one()};
    sent.payload = then;
    sent.wire += packet.payload.size() + overhead + joined;
  }
  if (count == 0) return 0;
  core.counters.data_packets_sent += count;
  sent.in_flight = requester_.in_flight() - in_flight_before;
  on_sent(now, sent);
  return count;
}

// Sends full packets of one write, with less than `below` bytes of payload in all. Their headers
// are made from one pattern, and nothing is joined to them.
inline size_t ExtendedEnd::transmit_run(Instant now, Bytes below, uint16_t path,
                                        std::span<TxPacket> out) {
  Slab& slab = shared_.core.slab;
  const PathMtu& path_mtu = requester_.mtu();
  const Bytes mtu = path_mtu.payload();
  if (below <= 2 * mtu || out.size() < 2) return 0;
  const Bytes most =
      std::min({(below - 1) / mtu, Bytes{out.size()}, Bytes{slab.room() / shared_.slab_bytes}});
  Requester::Outgoing first;
  const uint32_t count = requester_.next_run(now, static_cast<uint32_t>(most), &first);
  if (count == 0) return 0;
  const uint8_t* data = first.payload.data();
  const size_t bytes = first.payload.size();
  const size_t sealed = shared_.enciphers ? bytes : 0;
  std::array<uint8_t, wire::kDataHeaderBytes> pattern;
  wire::encode(first.header, pattern);
  const size_t size = shared_.overhead_bytes + sealed;
  uint8_t* room = slab.take(count * size).data();
  for (uint32_t i = 0; i < count; ++i, data += bytes, room += size) {
    const std::span piece(room, size);
    const auto header = piece.first<wire::kDataHeaderBytes>();
    const auto trailer = piece.last(shared_.trailer_bytes);
    wire::encode_alike(pattern, first.header.psn + i, first.header.address + i * bytes, header);
    const auto payload = seal(header, {data, bytes}, piece.subspan(header.size(), sealed), trailer);
    new (&out[i]) TxPacket{.header = header,  // in place: the copy of a temporary stalls
                           .payload = payload,
                           .trailer = trailer,
                           .destination = &qp_.remote.address,
                           .path = path,
                           .traffic_class = qp_.config.traffic_class,
                           .alone = path_mtu.one_by_one()};
  }
  return count;
}

// Sends a packet that is too large for the path, in pieces of whole lines. Pieces without room are
// lost, and with them the packet; the first packet of a turn has room.
size_t ExtendedEnd::transmit_pieces(const Requester::Outgoing& packet, uint16_t path,
                                    std::span<TxPacket> out) {
  Slab& slab = shared_.core.slab;
  const PathMtu& path_mtu = requester_.mtu();
  const Bytes most = path_mtu.piece_payload();
  const size_t bytes = packet.payload.size();
  wire::DataHeader fields = packet.header;
  fields.pieces = static_cast<uint8_t>((bytes + most - 1) / most);
  size_t count = 0;
  for (; count < fields.pieces && count < out.size(); ++count) {
    const Bytes offset = count * most;
    const auto data = packet.payload.subspan(offset, std::min(most, bytes - offset));
    const size_t sealed = shared_.enciphers ? data.size() : 0;
    const size_t room = wire::kPieceHeaderBytes + sealed + shared_.trailer_bytes;
    if (slab.room() < room) break;
    fields.piece = static_cast<uint8_t>(count);
    fields.address = packet.header.address + offset;
    const auto piece = slab.take(room);
    wire::encode_piece(fields, piece.first<wire::kPieceHeaderBytes>());
    out[count] = sealed_packet(piece, wire::kPieceHeaderBytes, data, path);
    out[count].alone = path_mtu.one_by_one();
  }
  return count;
}

// Sends packets without a meaning: the peer reports the sizes of the ones that arrive.
size_t ExtendedEnd::transmit_questions(Instant now, std::span<TxPacket> out) {
  const PathMtu::Questions questions = requester_.ask(now);
  const uint16_t path = requester_.choose_path(now);
  size_t count = 0;
  // The largest first: a limiter drops the last of a burst.
  for (size_t i = questions.alone.size(); i-- > 0;) {
    const Bytes size = questions.alone[i];
    count += ask(size, false, path, now, out.subspan(count));
  }
  for (const Bytes size : questions.joined) {
    for (int i = 0; i < 2; ++i) count += ask(size, true, path, now, out.subspan(count));
  }
  on_asked();
  return count;
}

// Makes a question; 0: no room, as if lost. Its time's lowest bit: whether it may be joined.
size_t ExtendedEnd::ask(Bytes size, bool joined, uint16_t path, Instant now,
                        std::span<TxPacket> out) {
  Slab& slab = shared_.core.slab;
  const Bytes overhead = shared_.overhead_bytes + ip_udp_bytes(qp_.remote.address);
  const auto nothing = std::span(g_nothing).first(size - overhead);
  const size_t room = shared_.overhead_bytes + (shared_.enciphers ? nothing.size() : 0);
  if (out.empty() || slab.room() < room) return 0;
  const auto piece = slab.take(room);
  wire::encode({.question = true,
                .destination_qp = qp_.remote.queue_pair,
                .timestamp = (static_cast<uint32_t>(now.ns()) & ~1U) | (joined ? 1U : 0U)},
               piece.first<wire::kDataHeaderBytes>());
  out[0] = sealed_packet(piece, wire::kDataHeaderBytes, nothing, path);
  out[0].alone = !joined;
  return 1;
}

// After a question or an answer, which may have settled what passes.
void ExtendedEnd::on_asked() {
  NicCore& core = shared_.core;
  core.timers.arm(qp_.slot, deadline());
  if (!qp_.config.paced) return;  // only data has a flow
  FlowSignal& signal = core.scheduler.flows()[qp_.config.flow].signal;
  const auto path_mtu = static_cast<uint32_t>(requester_.mtu().reduced());
  if (requester_.mtu().searching() || signal.path_mtu == path_mtu) return;
  signal.path_mtu = path_mtu;
  core.scheduler.flows().report(qp_.config.flow);
}

// The packet whose header begins `piece` of the slab, and whose trailer ends it. Between them there
// is room for an enciphered payload.
TxPacket ExtendedEnd::sealed_packet(std::span<uint8_t> piece, size_t header_bytes,
                                    std::span<const uint8_t> payload, uint16_t path) {
  const auto header = piece.first(header_bytes);
  const auto trailer = piece.last(shared_.trailer_bytes);
  const auto sealed = piece.subspan(header_bytes, shared_.enciphers ? payload.size() : 0);
  return {.header = header,
          .payload = seal(header, payload, sealed, trailer),
          .trailer = trailer,
          .destination = &qp_.remote.address,
          .path = path,
          .traffic_class = qp_.config.traffic_class};
}

void ExtendedEnd::on_timeout(Instant now) {
  NicCore& core = shared_.core;
  core.on_send_timeout(*this, now);
  if (requester_.mtu().deadline() > now || !qp_.connected()) return;
  core.acks.request_now(qp_);
  // Not at once again. transmit_questions sets the timer anew.
  core.timers.arm(qp_.slot, std::min(requester_.deadline(), now + kAskAgain));
}

void ExtendedEnd::on_answer(const wire::Nak& nak, Instant now) {
  const Bytes size = nak.psn + ip_udp_bytes(qp_.remote.address);
  requester_.on_answer(size, (nak.echo_timestamp & 1) != 0, now);
  on_asked();
  shared_.core.scheduler.wake(qp_);
}

void ExtendedEnd::on_sent(Instant now, const FlowScheduler::Sent& sent) {
  NicCore& core = shared_.core;
  core.counters.data_bytes_sent += sent.payload;
  core.scheduler.on_sent(qp_, sent, now);
  core.timers.arm(qp_.slot, deadline());
}

// The packet of an acknowledgement or a refusal. Their order does not matter, so they take the
// paths in turn, and the failure of one path does not stop them all.
TxPacket ExtendedEnd::answer(std::span<const uint8_t> bytes) {
  const auto path = static_cast<uint16_t>(answer_path_);
  answer_path_ = answer_path_ + 1 == shared_.core.config.paths ? 0 : answer_path_ + 1;
  return {.header = bytes,
          .payload = {},
          .trailer = {},
          .destination = &qp_.remote.address,
          .path = path,
          .traffic_class = TrafficClass::kControl};
}

TxPacket ExtendedEnd::refusal(const wire::Nak& nak) {
  const auto bytes = shared_.core.slab.take(wire::kNakBytes + shared_.trailer_bytes);
  wire::encode(nak, bytes.first<wire::kNakBytes>());
  seal(bytes.first(wire::kNakBytes), {}, {}, bytes.last(shared_.trailer_bytes));
  TxPacket packet = answer(bytes);
  packet.alone =
      nak.syndrome == wire::Syndrome::kQuestion;  // or joined packets must pass here, too
  return packet;
}

size_t ExtendedEnd::transmit_answers(Instant now, std::span<TxPacket> out) {
  if (shared_.core.slab.room() < max_ack_bytes()) return 0;
  size_t count = 0;
  if (const auto ack = write_ack(now); !ack.empty()) out[count++] = answer(ack);
  if (requester_.mtu().deadline() <= now) count += transmit_questions(now, out.subspan(count));
  return count;
}

// Writes the acknowledgement of all arrived packets into the slab, which has room; empty: none due.
std::span<const uint8_t> ExtendedEnd::write_ack(Instant now) {
  NicCore& core = shared_.core;
  core.acks.clear(qp_);
  if (!responder_.ack_due()) return {};
  const auto bytes = core.slab.take(max_ack_bytes());
  const size_t size = responder_.write_ack(qp_.remote.queue_pair, now, bytes);
  seal(bytes.first(size), {}, {}, bytes.subspan(size, shared_.trailer_bytes));
  core.slab.give_back(bytes.size() - size - shared_.trailer_bytes);
  ++core.counters.acks_sent;
  return bytes.first(size + shared_.trailer_bytes);
}

// Writes the next packet, with its payload, into the slab, and returns its bytes.
size_t ExtendedEnd::write_control(Instant now, Bytes room) {
  NicCore& core = shared_.core;
  if (!qp_.connected() || shared_.overhead_bytes + next_bytes() > room) return 0;
  requester_.choose_path(now);
  Requester::Outgoing packet;
  if (!requester_.next_packet(now, &packet)) return 0;
  const auto header = core.slab.take(wire::kDataHeaderBytes);
  wire::encode(packet.header, header.first<wire::kDataHeaderBytes>());
  const auto payload = core.slab.take(packet.payload.size());
  const auto sent = seal(header, packet.payload, payload, core.slab.take(shared_.trailer_bytes));
  if (sent.data() != payload.data()) std::ranges::copy(sent, payload.begin());
  ++core.counters.data_packets_sent;
  on_sent(now, {.payload = payload.size()});
  core.scheduler.remove_control(qp_);
  core.scheduler.wake(qp_);
  return shared_.overhead_bytes + payload.size();
}

// Writes into the slab the acknowledgements that wait for this peer, and last one control write, if
// they fit into `room` bytes, which the slab has, and returns their bytes. They will leave together
// with `packets` packets.
size_t ExtendedEnd::gather(Instant now, Bytes room, size_t packets) {
  NicCore& core = shared_.core;
  size_t bytes = 0;
  ExtendedEnd* control = nullptr;
  ExtendedEnd* end = this;
  do {
    const size_t most = end->max_ack_bytes();
    if (core.acks.worth_joining(end->qp_, now, packets) && bytes + most <= room) {
      bytes += end->write_ack(now).size();
    }
    if (core.scheduler.has_control(end->qp_) && end != this && end->requester_.next_passes()) {
      control = end;
    }
    end = end->next_sibling_;
  } while (end != this);
  if (control != nullptr) bytes += control->write_control(now, room - bytes);
  return bytes;
}

// Appends acknowledgements and a control write for this peer to a packet whose trailer is the
// newest piece of the slab. Returns the number of bytes.
size_t ExtendedEnd::join(Instant now, Bytes room, size_t packets) {
  Slab& slab = shared_.core.slab;
  room = std::min<Bytes>(room, slab.room());
  if (room < wire::kJoinedBytes) return 0;
  const size_t bytes = gather(now, room - wire::kJoinedBytes, packets);
  if (bytes == 0) return 0;
  wire::store_be16(static_cast<uint16_t>(bytes), slab.take(wire::kJoinedBytes).data());
  return bytes + wire::kJoinedBytes;
}

// Full packets have no room for them, so they become a packet behind the burst, unless its last
// packet is shorter than the first: only the last packet of a burst may be.
size_t ExtendedEnd::follow(Instant now, std::span<const TxPacket> burst, std::span<TxPacket> out) {
  if (out.empty() || burst.back().size() < burst.front().size()) return 0;
  Slab& slab = shared_.core.slab;
  const uint8_t* const begin = slab.take(0).data();
  const size_t bytes = gather(now, std::min<Bytes>(burst.back().size(), slab.room()), burst.size());
  if (bytes == 0) return 0;
  out[0] = {.header = {begin, bytes},
            .payload = {},
            .trailer = {},
            .destination = &qp_.remote.address,
            .path = burst.back().path,
            .traffic_class = burst.back().traffic_class};
  return 1;
}

}  // namespace pacecar
