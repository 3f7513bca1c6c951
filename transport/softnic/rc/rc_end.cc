#include "transport/softnic/rc/rc_end.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/wire/address.h"

namespace pacecar {
namespace {

// Between two notifications of congestion of a queue pair, as hardware has it (annex A17 leaves it
// open; 50 us in Zhu et al., SIGCOMM 2015).
constexpr Duration kNotificationInterval = Duration::from_us(50);

RcRequester::Config requester_config(const SoftNicConfig& nic, const QueuePair& qp,
                                     const StandardPeer& peer, uint8_t read_depth) {
  return {.peer_queue_pair = qp.remote.queue_pair,
          .first_psn = wide_psn(qp.local.first_psn),
          .window_packets = qp.local.window_packets,
          .work_requests = qp.config.work_requests,
          .mtu = qp.remote.mtu,
          .paths = nic.paths,
          .path_seed = qp.local.queue_pair,
          .loss = nic.loss,
          .sending = {.read_depth = read_depth,
                      .silence_limit = nic.silence_limit,
                      .not_ready_limit = nic.silence_limit},
          .reliable = peer.reliable};
}

RcResponder::Config responder_config(const QueuePair& qp, const StandardPeer& peer) {
  return {.queue_pair = qp.id,
          .domain = qp.config.domain,
          .peer_queue_pair = qp.remote.queue_pair,
          .first_psn = wide_psn(qp.remote.first_psn),
          .read_depth = std::clamp<uint8_t>(peer.read_depth, 1, kMostReads),
          .mtu = qp.remote.mtu,
          .rights = peer.rights,
          .reliable = peer.reliable};
}

uint8_t reads_at_once(const PeerEndpoint& peer) {
  return std::clamp<uint8_t>(peer.standard.read_depth, 1, kReadsAtOnce);
}

}  // namespace

RcShared::RcShared(NicCore& nic, RocePackets& roce_packets)
    : core(nic),
      packets(roce_packets),
      reads(nic.config.receive_bytes),
      readers(nic.config.flows),
      ends(nic.queue_pairs.size()),
      standby_rooms(nic.speaks_standard() ? nic.user_slots() : 0) {
  if (!nic.speaks_standard()) return;
  // Their key is not advertised, so peers can only send to them.
  standby_key =
      nic.memory.add(standby_rooms.data(), standby_rooms.bytes(), Access::kRemoteWrite)->key;
}

Result<void> RcEnd::connect(RcShared& shared, QueuePair& qp, const PeerEndpoint& peer) {
  const SoftNicConfig& config = shared.core.config;
  if (!shared.core.speaks_standard()) {
    return fail(
        ErrorCode::kPeer,
        "the peer's NIC uses standard RoCE v2 only, and this software NIC uses the extended "
        "mode only: set PACECAR_WIRE=auto or PACECAR_WIRE=roce here");
  }
  if (config.security == Security::kEncrypt) {
    return fail(ErrorCode::kPeer,
                "PACECAR_SECURITY=encrypt needs the extended mode on both sides, and the peer uses "
                "standard RoCE v2: set PACECAR_WIRE=extended on all hosts");
  }
  if (!config.knows_ip_header && !config.identifies_datagrams) {
    return fail(ErrorCode::kPeer,
                "standard RoCE v2 over IPv4 needs packets with their IP header, which UDP sockets "
                "do not provide: use soft:raw:INTERFACE, or an interface with an IPv6 address");
  }
  const Address address{.ip = peer.standard.gid};
  if (is_ipv4(address) != is_ipv4(config.address)) {
    return fail(
        ErrorCode::kPeer,
        fmt::format("the peer's GID {} is of another IP version than our address: choose a GID "
                    "or an address of the same IP version",
                    ip_to_string(address)));
  }
  set_remote(shared, qp, peer.standard, peer.standard.lane[0]);
  const StandardPeer rights{.read_depth = kReadsAtOnce,
                            .rights = {.rnr_delay = roce::kUsualRnrDelay}};
  auto end = std::unique_ptr<RcEnd>(new RcEnd(shared, qp, rights, reads_at_once(peer)));
  if (qp.standby && peer.standby) end->make_standby(peer);
  qp.end = std::move(end);
  qp.state = QueuePair::State::kConnected;
  return {};
}

Result<void> RcEnd::connect(RcShared& shared, QueuePair& qp, const StandardPeer& peer) {
  NicCore& core = shared.core;
  const SoftNicConfig& config = core.config;
  if (is_ipv4(Address{.ip = peer.gid}) != is_ipv4(config.address)) {
    return fail(ErrorCode::kInvalidArgument, "the peer's GID is of another IP version than ours");
  }
  qp.config.flow = peer.flow;
  qp.config.paced = true;
  qp.local.window_packets = window_packets(config, qp.config);
  set_remote(shared, qp, {.gid = peer.gid, .mtu = standard_mtu(peer.mtu)},
             {.queue_pair = peer.queue_pair, .first_psn = peer.first_psn});
  qp.end.reset(new RcEnd(shared, qp, peer, 1));
  qp.state = QueuePair::State::kConnected;
  core.scheduler.join(qp);
  return {};
}

void RcEnd::set_remote(const RcShared& shared, QueuePair& qp, const RcEndpoint& peer,
                       const RcLane& lane) {
  const SoftNicConfig& config = shared.core.config;
  qp.remote = SoftEndpoint{.address = {.ip = peer.gid,
                                       .scope_id = config.address.scope_id,
                                       .port = shared.packets.port_of(lane.queue_pair)},
                           .queue_pair = lane.queue_pair,
                           .first_psn = lane.first_psn,
                           .mtu = std::min(standard_mtu(config.mtu), peer.mtu)};
}

Bytes RcEnd::memory(const QueuePairConfig& config) {
  const auto connection = [](Bytes end, uint32_t work_requests, uint32_t receives) {
    return sizeof(QueuePair) + end + RcRequester::work_request_bytes(work_requests) +
           receives * sizeof(ReceiveRequest);
  };
  constexpr uint32_t kMessages = StandbyMessages::kMessages;
  return connection(sizeof(RcEnd), config.work_requests, config.receives) +
         (config.receives == 0 ? connection(sizeof(StandbyEnd), kMessages, kMessages) : 0);
}

RcEnd::RcEnd(RcShared& shared, QueuePair& qp, const StandardPeer& peer, uint8_t read_depth)
    : shared_(shared),
      qp_(qp),
      requester_(requester_config(shared.core.config, qp, peer, read_depth), shared.reads),
      responder_(responder_config(qp, peer), qp.receive_queue()),
      recovery_(*this),
      reliable_(peer.reliable) {
  shared_.ends[qp.slot] = this;
}

RcEnd::~RcEnd() {
  shared_.ends[qp_.slot] = nullptr;
  QueuePair* standby = recovery_.standby();
  if (standby == nullptr) return;
  shared_.core.detach(*standby);
  shared_.core.queue_pairs[standby->slot].reset();
}

void RcEnd::make_standby(const PeerEndpoint& peer) {
  NicCore& core = shared_.core;
  auto standby = std::make_unique<QueuePair>();
  standby->id = qp_.standby->queue_pair;
  standby->slot = core.slot_of(standby->id);
  standby->internal = true;
  standby->config = {.flow = qp_.config.flow,
                     .traffic_class = TrafficClass::kControl,
                     .paced = false,
                     .work_requests = StandbyMessages::kMessages,
                     .receives = StandbyMessages::kMessages};
  standby->local = qp_.local;
  standby->local.queue_pair = standby->id;
  standby->local.first_psn = qp_.standby->first_psn;
  standby->local.window_packets = window_packets(core.config, standby->config);
  standby->receives = FixedQueue<ReceiveRequest>(StandbyMessages::kMessages);
  set_remote(shared_, *standby, peer.standard, *peer.standby);
  standby->end = std::make_unique<StandbyEnd>(shared_, *standby, *this, peer);
  standby->state = QueuePair::State::kConnected;
  recovery_.use_standby(standby.get());
  const uint32_t slot = standby->slot;
  core.queue_pairs[slot] = std::move(standby);
}

void RcEnd::notify_congestion(Instant now) {
  ++shared_.core.counters.marked_packets;
  if (now < next_notification_) return;
  next_notification_ = now + kNotificationInterval;
  notification_due_ = true;
  shared_.core.acks.request_now(qp_);
}

void RcEnd::on_answer(const roce::Packet& packet, Instant arrival, Instant now) {
  if (!qp_.connected()) return;
  NicCore& core = shared_.core;
  const Bytes in_flight_before = in_flight();
  SendProgress progress;
  if (packet.opcode == roce::Opcode::kAck) {
    ++core.counters.acks_received;
    progress = requester_.on_ack(packet, arrival, now);
  } else {
    ++core.counters.data_packets_received;
    core.counters.data_bytes_received += packet.payload.size();
    progress = requester_.on_read_response(packet, core.memory, now);
  }
  if (qp_.config.paced) {
    core.scheduler.flows()[qp_.config.flow].signal.echo_marked |= progress.marked > 0;
  }
  on_progress(in_flight_before, progress);
  core.timers.arm(qp_.slot, deadline());
  on_answered(now);
  check_failure(now);
  core.scheduler.wake(qp_);
}

void RcEnd::on_answered(Instant /*now*/) { shared_.core.events.add(qp_.slot); }

void RcEnd::check_failure(Instant now) {
  if (recovery_.open() && requester_.failure() != CompletionStatus::kOk) {
    recovery_.fail(requester_.failure(), now);
  }
}

void RcEnd::on_request(const roce::Packet& packet, Instant now) {
  NicCore& core = shared_.core;
  NicCounters& counters = core.counters;
  if (core.received.full()) {
    ++counters.completions_full;
    return;
  }
  switch (responder_.on_request(packet, core.memory)) {
    case RcResponder::Outcome::kCompleted:
      if (responder_.completion().invalidated) core.memory.remove(packet.invalidated_key);
      on_received(responder_.completion(), now);
      [[fallthrough]];
    case RcResponder::Outcome::kPlaced:
      ++counters.data_packets_received;
      counters.data_bytes_received += packet.payload.size();
      // Only a write's last packet shows whether it has an immediate.
      counters.silent_packets_received += roce::shape_of(packet.opcode).immediate ? 0 : 1;
      if (qp_.config.paced)
        core.scheduler.flows().on_arrived(qp_.config.flow, packet.payload.size());
      if (!reliable_) return;
      qp_.unacknowledged_bytes += packet.payload.size();
      ++qp_.unacknowledged_packets;
      core.acks.request(qp_, now, packet.ack_request || core.config.ack.every_packet);
      return;
    case RcResponder::Outcome::kDuplicate: ++counters.duplicates; break;
    case RcResponder::Outcome::kOutOfOrder: ++counters.out_of_order; break;
    case RcResponder::Outcome::kRead:
    case RcResponder::Outcome::kNotReady: break;
    case RcResponder::Outcome::kDropped: ++counters.access_errors; break;
    case RcResponder::Outcome::kRefused:
      ++counters.access_errors;
      recovery_.fail(responder_.cause(), now);
      break;
  }
  if (responder_.answer_due()) core.acks.request_now(qp_);
}

void RcEnd::on_received(const Completion& received, Instant /*now*/) {
  Completion completion = received;
  completion.queue_pair = qp_.id;
  shared_.core.received.push(completion);
}

size_t RcEnd::post(std::span<const WorkRequest> work_requests) {
  NicCore& core = shared_.core;
  for (const WorkRequest& work_request : work_requests) {
    core.check_memory(work_request);
    PACECAR_CHECK(work_request.length <= roce::kMaxMessageBytes);
  }
  const size_t accepted = requester_.post(work_requests);
  if (requester_.has_completed()) core.events.add(qp_.slot);
  return accepted;
}

void RcEnd::revoke(const GoneMemory& gone) {
  requester_.revoke(gone);
  // Requests of which nothing was sent have failed already.
  if (qp_.connected()) shared_.core.events.add(qp_.slot);
}

void RcEnd::on_timeout(Instant now) {
  if (!recovery_.up()) return recovery_.on_timeout(now);
  shared_.core.on_send_timeout(*this, now);
}

void RcEnd::on_broken() {
  const Bytes in_flight_before = in_flight();
  requester_.stop(qp_.broken_by);
  // Other queue pairs of its flow have more window now.
  on_progress(in_flight_before, {.dropped = requester_.abandon()});
  shared_.core.scheduler.wake(qp_);
  if (recovery_.standby() != nullptr) recovery_.standby()->state = QueuePair::State::kBroken;
}

const char* RcEnd::fault() const {
  return responder_.refused()
             ? "used memory without permission, or sent more than there is room for: look at its "
               "error, and at the memory advertised to it"
             : nullptr;
}

// UC: work requests whose packets were sent before the last call are done.
void RcEnd::on_handed_over() {
  NicCore& core = shared_.core;
  const Bytes in_flight_before = in_flight();
  on_progress(in_flight_before, requester_.on_handed_over());
  core.events.add(qp_.slot);
  if (!requester_.idle()) core.scheduler.add_control(qp_);
  core.scheduler.wake(qp_);
}

size_t RcEnd::transmit_control(Instant now, std::span<TxPacket> out) {
  if (!reliable_) {
    on_handed_over();
    return 0;
  }
  const size_t count = transmit(now, shared_.core.config.burst_bytes, out);
  shared_.core.scheduler.wake(qp_);
  return count;
}

size_t RcEnd::transmit(Instant now, Bytes budget, std::span<TxPacket> out) {
  NicCore& core = shared_.core;
  const Bytes in_flight_before = in_flight();
  const uint16_t path = requester_.choose_path(now);
  const Bytes last_from = core.scheduler.last_from(qp_);
  const bool sparse = core.scheduler.sparse(qp_);
  FlowScheduler::Sent sent;
  size_t count = 0;
  RcRequester::Outgoing packet;
  while (count < out.size() && core.slab.room() >= RocePackets::kMaxOverheadBytes &&
         (count == 0 || sent.payload + core.config.mtu <= budget)) {
    if (qp_.config.paced && shared_.reads.full() && requester_.next_reads()) {
      shared_.readers.add(qp_.config.flow);
      break;
    }
    const bool ask = sparse || sent.payload + requester_.next_bytes() >= last_from;
    if (!requester_.next_packet(now, ask, &packet)) break;
    out[count] =
        shared_.packets.write(qp_.remote.address, packet.packet, path, qp_.config.traffic_class);
    sent.payload += packet.packet.payload.size();
    sent.wire += out[count++].size() + core.config.wire_overhead_bytes;
    core.counters.packets_retransmitted += packet.retransmission ? 1 : 0;
  }
  if (count > 0) {
    if (!reliable_) core.scheduler.add_control(qp_);  // the next call completes them
    core.counters.data_packets_sent += count;
    core.counters.data_bytes_sent += sent.payload;
    sent.in_flight = in_flight() - in_flight_before;
    core.scheduler.on_sent(qp_, sent, now);
    core.timers.arm(qp_.slot, deadline());
  }
  check_failure(now);
  return count;
}

// At most a burst of read responses, so that others get a turn. Answers take one path, in order.
size_t RcEnd::transmit_answers(Instant now, std::span<TxPacket> out) {
  NicCore& core = shared_.core;
  core.acks.clear(qp_);
  const auto path = static_cast<uint16_t>(qp_.local.queue_pair % core.config.paths);
  const auto traffic_class = qp_.config.paced ? TrafficClass::kControl : qp_.config.traffic_class;
  size_t count = 0;
  Bytes payload_bytes = 0;
  const auto room = [&] {
    return count < out.size() && core.slab.room() >= RocePackets::kMaxOverheadBytes;
  };
  if (notification_due_ && room()) {
    const roce::Packet notification{.opcode = roce::Opcode::kCnp,
                                    .destination_qp = qp_.remote.queue_pair};
    out[count++] =
        shared_.packets.write(qp_.remote.address, notification, path, TrafficClass::kControl);
    notification_due_ = false;
  }
  roce::Packet answer;
  while (room() && payload_bytes < core.config.burst_bytes &&
         responder_.next_answer(core.memory, &answer)) {
    out[count++] = shared_.packets.write(qp_.remote.address, answer, path, traffic_class);
    payload_bytes += answer.payload.size();
    if (answer.opcode == roce::Opcode::kAck) {
      ++core.counters.acks_sent;
    } else {
      ++core.counters.data_packets_sent;
      core.counters.data_bytes_sent += answer.payload.size();
    }
  }
  if (responder_.answer_due() || notification_due_) core.acks.request_now(qp_);
  // Memory that is read may have been deregistered.
  if (recovery_.open() && responder_.refused()) {
    recovery_.fail(CompletionStatus::kLocalError, now);
  }
  recovery_.advance(now);  // the NAK is sent before the connection ends
  return count;
}

StandbyEnd::StandbyEnd(RcShared& shared, QueuePair& qp, RcEnd& owner, const PeerEndpoint& peer)
    : RcEnd(shared, qp, {.read_depth = 1, .rights = {.rnr_delay = roce::kUsualRnrDelay}},
            reads_at_once(peer)),
      owner_(owner),
      messages_(shared.standby_rooms[owner.queue_pair().slot], shared.standby_key) {
  for (uint64_t i = 0; i < StandbyMessages::kMessages; ++i) {
    qp.receives.push(messages_.receive(i));
  }
}

bool StandbyEnd::send(const RecoveryMessage& message) {
  if (!messages_.send(message, requester())) return false;
  shared().core.scheduler.wake(queue_pair());
  return true;
}

void StandbyEnd::on_answered(Instant now) {
  WorkRequest request;
  CompletionStatus status;
  while (pop_completed(&request, &status)) {
  }
  owner_.recovery().advance(now);
}

void StandbyEnd::on_received(const Completion& completion, Instant now) {
  const auto message = messages_.take(completion);
  queue_pair().receives.push(messages_.receive(completion.work_request));
  if (!message) return owner_.recovery().on_malformed();
  owner_.recovery().on_message(*message, now);
}

// This matters only while the owner's connection is being recovered.
void StandbyEnd::on_broken() {
  RcEnd::on_broken();
  const RcRecovery& recovery = owner_.recovery();
  if (!recovery.up()) {
    shared().core.break_queue_pair(owner_.queue_pair(), recovery.failed_by());
  }
}

}  // namespace pacecar
