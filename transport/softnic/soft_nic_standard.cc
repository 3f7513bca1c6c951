// The part of SoftNic for standard RC: connections, packets in and out. The other parts have flows,
// pacing, timers and completions, which both wire modes share.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transport/softnic/soft_nic.h"
#include "transport/wire/address.h"
#include "transport/wire/icrc.h"
#include "transport/wire/roce.h"

namespace pacecar {
namespace {

// Between two notifications of congestion of a queue pair, as hardware has it (annex A17 leaves it
// open; 50 us in Zhu et al., SIGCOMM 2015).
constexpr Duration kNotificationInterval = Duration::from_us(50);
constexpr size_t kMaxOverheadBytes = roce::kMaxHeaderBytes + roce::kMaxTrailerBytes;

}  // namespace

Result<void> SoftNic::connect_standard(QueuePair& qp, const PeerEndpoint& peer) {
  if (!speaks_standard()) {
    return fail(
        ErrorCode::kPeer,
        "the peer's NIC uses standard RoCE v2 only, and this software NIC uses the extended "
        "mode only: set PACECAR_WIRE=auto or PACECAR_WIRE=roce here");
  }
  if (config_.security == Security::kEncrypt) {
    return fail(ErrorCode::kPeer,
                "PACECAR_SECURITY=encrypt needs the extended mode on both sides, and the peer uses "
                "standard RoCE v2: set PACECAR_WIRE=extended on all hosts");
  }
  if (!config_.knows_ip_header && !config_.identifies_datagrams) {
    return fail(ErrorCode::kPeer,
                "standard RoCE v2 over IPv4 needs packets with their IP header, which UDP sockets "
                "do not provide: use soft:raw:INTERFACE, or an interface with an IPv6 address");
  }
  const bool ipv4 = is_ipv4(config_.address);
  const Address address{.ip = peer.standard.gid};
  if (is_ipv4(address) != ipv4) {
    return fail(
        ErrorCode::kPeer,
        fmt::format("the peer's GID {} is of another IP version than our address: choose a GID "
                    "or an address of the same IP version",
                    ip_to_string(address)));
  }
  make_standby(qp, peer);
  open_lane(qp, peer.standard, peer.standard.lane[0]);
  return {};
}

void SoftNic::open_lane(QueuePair& qp, const RcEndpoint& peer, const RcLane& lane) {
  const Address address{
      .ip = peer.gid, .scope_id = config_.address.scope_id, .port = peer_port(lane.queue_pair)};
  qp.remote = SoftEndpoint{.address = address,
                           .queue_pair = lane.queue_pair,
                           .first_psn = lane.first_psn,
                           .mtu = std::min(standard_mtu(qp.local.mtu), peer.mtu)};
  open_connection(
      qp,
      {.read_depth = is_standby(qp) ? uint8_t{1} : kReadsAtOnce, .rnr_delay = roce::kUsualRnrDelay},
      std::clamp<uint8_t>(peer.read_depth, 1, kReadsAtOnce));
}

void SoftNic::open_connection(QueuePair& qp, const StandardPeer& peer, uint8_t read_depth) {
  qp.rc = std::make_unique<RcConnection>(RcConnection{
      .requester = RcRequester({.peer_queue_pair = qp.remote.queue_pair,
                                .first_psn = wide_psn(qp.local.first_psn),
                                .window_packets = qp.local.window_packets,
                                .work_requests = qp.config.work_requests,
                                .mtu = qp.remote.mtu,
                                .read_depth = read_depth,
                                .paths = config_.paths,
                                .path_seed = qp.local.queue_pair,
                                .loss = config_.loss,
                                .silence_limit = config_.silence_limit,
                                .not_ready_limit = config_.silence_limit,
                                .reliable = peer.reliable},
                               reads_),
      .responder = RcResponder({.queue_pair = qp.id,
                                .domain = qp.config.domain,
                                .peer_queue_pair = qp.remote.queue_pair,
                                .first_psn = wide_psn(qp.remote.first_psn),
                                .read_depth = std::clamp<uint8_t>(peer.read_depth, 1, kMostReads),
                                .mtu = qp.remote.mtu,
                                .access = peer.access,
                                .rnr_delay = peer.rnr_delay,
                                .reliable = peer.reliable},
                               qp.receive_queue()),
      .recovery = {},
      .reliable = peer.reliable,
      .next_notification = Instant()});
  qp.state = QueuePair::State::kConnected;
}

size_t SoftNic::post_receives(QueuePairId id, std::span<const ReceiveRequest> requests) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr);
  return speaks_standard() ? take_receives(qp->receives, requests) : 0;
}

std::string SoftNic::peer(QueuePairId id) const {
  const QueuePair* qp = find(id);
  return qp == nullptr ? std::string() : to_string(qp->remote.address);
}

std::string SoftNic::fault(QueuePairId id) const {
  const QueuePair* qp = find(id);
  if (qp == nullptr || qp->state != QueuePair::State::kBroken) return {};
  const char* what = qp->fault;
  if (what == nullptr && qp->rc && qp->rc->responder.refused()) {
    what =
        "used memory without permission, or sent more than there is room for: look at its error, "
        "and at the memory advertised to it";
  } else if (what == nullptr && qp->broken_by == CompletionStatus::kRetryExceeded) {
    what = "has not answered within the limit: check that it runs and that UDP packets pass";
  } else if (what == nullptr && qp->broken_by == CompletionStatus::kReceiverNotReady) {
    what = "has posted no receive request within the limit: let it post more of them";
  } else if (what == nullptr && qp->broken_by == CompletionStatus::kLocalError) {
    what = "answered a read in packets of another size: use the same MTU on both sides";
  }
  return what == nullptr ? std::string() : fmt::format("the peer at {} {}", peer(id), what);
}

// --- in ---

void SoftNic::on_standard(Instant now, const RxPacket& packet) {
  roce::Packet rc;
  if (!speaks_standard() || packet.elided > 0 ||
      roce::decode(packet.bytes, rc) != roce::Decoded::kOk) {
    ++counters_.malformed;
    return;
  }
  const roce::Kind kind = roce::shape_of(rc.opcode).kind;
  if (kind == roce::Kind::kDatagram) return on_datagram(packet, rc);
  QueuePair* qp = find_end(rc.destination_qp);
  // A broken connection repeats its NAK until the peer has received it.
  const bool open =
      qp != nullptr && qp->rc &&
      (qp->state == QueuePair::State::kBroken ? qp->rc->responder.refused() : qp->rc->open);
  if (!open) {
    ++counters_.unknown_queue_pair;
    return;
  }
  if (packet.source->ip != qp->remote.address.ip) {
    ++counters_.wrong_source;
    return;
  }
  if (!right_icrc(packet)) return;
  const bool of_service = kind == roce::Kind::kCnp || rc.unreliable != qp->rc->reliable;
  if (!of_service) {
    ++counters_.malformed;
    return;
  }
  if (packet.ecn == Ecn::kCongestion) notify_congestion(*qp, now);
  switch (kind) {
    case roce::Kind::kSend:
    case roce::Kind::kWrite:
    case roce::Kind::kReadRequest:
    case roce::Kind::kAtomic:
      on_request(*qp, rc, now);
      break;
    case roce::Kind::kCnp:
      qp->rc->requester.on_congestion();
      break;
    default:
      on_answer(*qp, rc, now - packet.waited, now);
      break;
  }
}

// A wrong ICRC is counted.
bool SoftNic::right_icrc(const RxPacket& packet) {
  const roce::Route route{*packet.source, config_.address, packet.ipv4_fragment};
  if (config_.identifies_datagrams ? roce::verify_icrc(route, packet.bytes, identifications_)
                                   : roce::verify_icrc(route, packet.bytes)) {
    return true;
  }
  ++counters_.bad_checksum;
  return false;
}

void SoftNic::notify_congestion(QueuePair& qp, Instant now) {
  ++counters_.marked_packets;
  if (now < qp.rc->next_notification) return;
  qp.rc->next_notification = now + kNotificationInterval;
  qp.rc->notification_due = true;
  acks_.add(slot_of(qp));
}

void SoftNic::on_answer(QueuePair& qp, const roce::Packet& packet, Instant arrival, Instant now) {
  if (qp.state != QueuePair::State::kConnected) return;
  RcRequester& requester = qp.rc->requester;
  const Bytes in_flight_before = requester.in_flight();
  SendProgress progress;
  if (packet.opcode == roce::Opcode::kAck) {
    ++counters_.acks_received;
    progress = requester.on_ack(packet, arrival, now);
  } else {
    ++counters_.data_packets_received;
    counters_.data_bytes_received += packet.payload.size();
    progress = requester.on_read_response(packet, memory_, now);
  }
  if (qp.config.paced) flows_[qp.config.flow].signal.echo_marked |= progress.marked > 0;
  on_progress(qp, in_flight_before, progress);
  wake_readers();
  arm_timeout(qp);
  if (is_standby(qp)) {
    on_standby_sent(qp, now);
  } else {
    events_.add(slot_of(qp));
  }
  check_failure(qp, now);
  wake(qp);
}

void SoftNic::check_failure(QueuePair& qp, Instant now) {
  if (qp.rc->open && qp.rc->requester.failure() != CompletionStatus::kOk) {
    fail_lane(qp, qp.rc->requester.failure(), now);
  }
}

void SoftNic::on_request(QueuePair& qp, const roce::Packet& packet, Instant now) {
  if (received_.full()) {
    ++counters_.completions_full;
    return;
  }
  RcResponder& responder = qp.rc->responder;
  switch (responder.on_request(packet, memory_)) {
    case RcResponder::Outcome::kCompleted:
      if (responder.completion().invalidated) unbind_window(packet.invalidated_key);
      if (is_standby(qp)) {
        on_standby_message(qp, responder.completion(), now);
      } else {
        Completion completion = responder.completion();
        completion.queue_pair = qp.id;
        received_.push(completion);
      }
      [[fallthrough]];
    case RcResponder::Outcome::kPlaced:
      ++counters_.data_packets_received;
      counters_.data_bytes_received += packet.payload.size();
      // Only a write's last packet shows whether it has an immediate.
      counters_.silent_packets_received += roce::shape_of(packet.opcode).immediate ? 0 : 1;
      if (qp.config.paced) flows_.on_arrived(qp.config.flow, packet.payload.size());
      if (!qp.rc->reliable) return;
      qp.unacknowledged_bytes += packet.payload.size();
      ++qp.unacknowledged_packets;
      want_ack(qp, now, packet.ack_request || config_.ack.every_packet);
      return;
    case RcResponder::Outcome::kDuplicate:
      ++counters_.duplicates;
      break;
    case RcResponder::Outcome::kOutOfOrder:
      ++counters_.out_of_order;
      break;
    case RcResponder::Outcome::kRead:
    case RcResponder::Outcome::kNotReady:
      break;
    case RcResponder::Outcome::kDropped:
      ++counters_.access_errors;
      break;
    case RcResponder::Outcome::kRefused:
      ++counters_.access_errors;
      fail_lane(qp, responder.cause(), now);
      break;
  }
  if (responder.answer_due()) acks_.add(slot_of(qp));
}

// --- out ---

// The packet, with its headers in the slab.
TxPacket SoftNic::standard_packet(const Address& destination, const roce::Packet& packet,
                                  uint16_t path, TrafficClass traffic_class) {
  const auto header = slab_.take(roce::header_bytes(packet.opcode));
  const auto trailer = slab_.take(roce::trailer_bytes(packet.payload.size()));
  roce::encode(packet, header);
  const auto padding = trailer.first(trailer.size() - roce::kIcrcBytes);
  std::ranges::fill(padding, uint8_t{0});
  Address source = config_.address;
  const bool control = traffic_class == TrafficClass::kControl;
  source.port = config_.source_ports[control ? config_.paths : path];
  const uint32_t fragment = config_.identifies_datagrams ? kIpv4Unidentified : kIpv4Fragment;
  wire::store_checksum(roce::icrc({source, destination, fragment}, header, packet.payload, padding),
                       trailer.last<roce::kIcrcBytes>());
  return {.header = header,
          .payload = packet.payload,
          .trailer = trailer,
          .destination = &destination,
          .path = control ? uint16_t{0} : path,
          .traffic_class = traffic_class};
}

Completion SoftNic::breaking_of(const QueuePair& qp) {
  const bool receives = qp.rc && qp.rc->responder.bad_receive();
  return {.work_request = receives ? qp.rc->responder.bad_receive()->id : 0,
          .queue_pair = qp.id,
          .kind = CompletionKind::kBroken,
          .status = qp.broken_by};
}

// Queue pairs without a flow are for control.
bool SoftNic::waits_to_read(const QueuePair& qp) const {
  return qp.config.paced && reads_.full() && qp.rc->requester.next_reads();
}

void SoftNic::wake_readers() {
  while (!reads_.full() && !readers_.empty()) make_ready(readers_.take());
}

size_t SoftNic::transmit_standard(QueuePair& qp, Instant now, Bytes budget,
                                  std::span<TxPacket> out) {
  RcRequester& requester = qp.rc->requester;
  const Bytes in_flight_before = requester.in_flight();
  const uint16_t path = requester.choose_path(now);
  const Bytes last_from = this->last_from(qp);
  const bool sparse = qp.config.paced && flows_[qp.config.flow].sparse;
  Sent sent;
  size_t count = 0;
  RcRequester::Outgoing packet;
  while (count < out.size() && slab_.room() >= kMaxOverheadBytes &&
         (count == 0 || sent.payload + config_.mtu <= budget)) {
    if (waits_to_read(qp)) {
      readers_.add(qp.config.flow);
      break;
    }
    const bool ask = sparse || sent.payload + requester.next_bytes() >= last_from;
    if (!requester.next_packet(now, ask, &packet)) break;
    out[count] = standard_packet(qp.remote.address, packet.packet, path, qp.config.traffic_class);
    sent.payload += packet.packet.payload.size();
    sent.wire += out[count++].size() + config_.wire_overhead_bytes;
    counters_.packets_retransmitted += packet.retransmission ? 1 : 0;
  }
  if (count > 0) {
    if (!qp.rc->reliable) controls_.add(slot_of(qp));  // the next call completes them
    counters_.data_packets_sent += count;
    sent.in_flight = requester.in_flight() - in_flight_before;
    account(qp, now, sent);
  }
  check_failure(qp, now);
  return count;
}

// A turn of one queue pair. It sends at most a burst of responses to reads, so that the others get
// their turn. All answers take one path, so that none overtakes another.
size_t SoftNic::transmit_answers(QueuePair& qp, Instant now, std::span<TxPacket> out) {
  const uint32_t slot = acks_.take();
  later_.remove(slot);
  qp.unacknowledged_bytes = 0;
  qp.unacknowledged_packets = 0;
  RcConnection& rc = *qp.rc;
  const auto path = static_cast<uint16_t>(qp.local.queue_pair % config_.paths);
  const auto traffic_class = qp.config.paced ? TrafficClass::kControl : qp.config.traffic_class;
  size_t count = 0;
  Bytes payload_bytes = 0;
  const auto room = [&] { return count < out.size() && slab_.room() >= kMaxOverheadBytes; };
  if (rc.notification_due && room()) {
    const roce::Packet notification{.opcode = roce::Opcode::kCnp,
                                    .destination_qp = qp.remote.queue_pair};
    out[count++] = standard_packet(qp.remote.address, notification, path, TrafficClass::kControl);
    rc.notification_due = false;
  }
  roce::Packet answer;
  while (room() && payload_bytes < config_.burst_bytes &&
         rc.responder.next_answer(memory_, &answer)) {
    out[count++] = standard_packet(qp.remote.address, answer, path, traffic_class);
    payload_bytes += answer.payload.size();
    if (answer.opcode == roce::Opcode::kAck) {
      ++counters_.acks_sent;
    } else {
      ++counters_.data_packets_sent;
      counters_.data_bytes_sent += answer.payload.size();
    }
  }
  if (rc.responder.answer_due() || rc.notification_due) acks_.add(slot);
  // Memory that is read may have been deregistered.
  if (rc.open && rc.responder.refused()) fail_lane(qp, CompletionStatus::kLocalError, now);
  advance_lane(qp, now);  // the NAK is sent before the connection ends
  return count;
}

}  // namespace pacecar
