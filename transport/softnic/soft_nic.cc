#include "transport/softnic/soft_nic.h"

#include <algorithm>
#include <bit>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"
#include "transport/base/seq.h"
#include "transport/wire/big_endian.h"

namespace pacecar {
namespace {

// AckPolicy::bytes by default.
constexpr Bytes kBurstsPerAck = 2;
// How long after the newest packet of a write the place of the next is predicted.
constexpr Duration kPatience = Duration::from_ms(1);
constexpr size_t kMostJoined = 256;  // most packets of one received burst
constexpr size_t kNaks = 1024;       // most refusals that wait to be sent
// Control writes are few and small.
constexpr uint32_t kControlWindowPackets = 256;

// Bytes of the slab: headers and trailers of one poll_transmit, and encrypted payloads. It is large
// enough for small bursts, and small enough for the processor's cache.
size_t header_memory(const SoftNicConfig& config) {
  constexpr size_t kMost = 32768;
  constexpr Bytes kSealedBursts = 4;
  if (config.security == Security::kEncrypt) return kMost + kSealedBursts * config.burst_bytes;
  if (config.transmit_packets == 0) return kMost;
  const uint32_t window = std::max(config.window_packets, kControlWindowPackets);
  const size_t largest =
      wire::ack_bytes(window / 64, kMaxTelemetryHops) + trailer_bytes(config.security);
  return std::min(kMost, config.transmit_packets * largest);
}

// The leading work requests that extended mode can send.
std::span<const WorkRequest> leading_writes(std::span<const WorkRequest> work_requests) {
  const auto end = std::ranges::find_if(work_requests, [](const WorkRequest& work_request) {
    return work_request.opcode > Opcode::kWriteWithImm;
  });
  return {work_requests.begin(), end};
}

uint32_t regions_of(const SoftNicConfig& config) {
  return config.regions + (config.wire_mode == WireMode::kExtended ? 0 : 1);  // standby_rooms_
}

size_t slots_of(const SoftNicConfig& config) {
  return std::bit_ceil(config.queue_pairs) * (config.wire_mode == WireMode::kExtended ? 1U : 2U);
}

Secret random_secret(const RandomSource& random) {
  Secret secret;
  for (size_t i = 0; i < secret.size(); i += 4) wire::store_be32(random(), &secret[i]);
  return secret;
}

std::vector<std::string> networks_of(WireMode mode) {
  std::vector<std::string> names;
  if (mode != WireMode::kRoce) names.emplace_back(kSoftNetwork);
  if (mode != WireMode::kExtended) names.emplace_back(kRoceNetwork);
  return names;
}

}  // namespace

SoftNic::SoftNic(const SoftNicConfig& config, RandomSource random, Instant now)
    : config_(config),
      random_(random),
      memory_(regions_of(config), random, config.random_addresses),
      reads_(config.receive_bytes),
      queue_pairs_(slots_of(config)),
      receive_queues_(config.receive_queues),
      standby_rooms_(speaks_standard() ? std::bit_ceil(config.queue_pairs) : 0),
      flows_(config.flows, FlowGate(config.burst_bytes, config.jitter)),
      timers_(static_cast<uint32_t>(queue_pairs_.size()) + config.flows, now),
      naks_(std::min<size_t>(config.completions, kNaks)),
      acks_(queue_pairs_.size()),
      later_(queue_pairs_.size()),
      controls_(queue_pairs_.size()),
      readers_(config.flows),
      events_(queue_pairs_.size()),
      posted_(queue_pairs_.size()),
      received_(config.completions),
      slab_(header_memory(config)),
      trailer_bytes_(trailer_bytes(config.security)),
      overhead_bytes_(wire::kDataHeaderBytes + trailer_bytes_),
      enciphers_(config.security == Security::kEncrypt),
      answers_pauses_(config.ack.idle != Duration::max()),
      slab_bytes_(overhead_bytes_ + (enciphers_ ? config.mtu : 0)),
      opened_(enciphers_ ? wire::kMaxDatagramBytes : 0),
      in_place_bytes_(config.in_place_bytes > 0 && !enciphers_ ? config.in_place_bytes : ~Bytes{0}),
      follower_(static_cast<uint32_t>(config.burst_bytes / config.mtu), kPatience),
      next_generation_(random()) {
  PACECAR_CHECK(queue_pairs_.size() <= (1U << 17));
  if (config_.wire_mode == WireMode::kRoce) config_.mtu = standard_mtu(config_.mtu);
  PACECAR_CHECK(!speaks_standard() || config_.source_ports.size() == config_.paths + 1);
  PACECAR_CHECK(config.burst_bytes >= config.mtu && config.paths > 0);
  if (config_.ack.bytes == 0) config_.ack.bytes = config.burst_bytes * kBurstsPerAck;
  caps_ = NicCaps{
      .line_rate = config.line_rate,
      .mtu = config_.mtu,
      .packet_overhead = (config.wire_mode == WireMode::kRoce
                              ? roce::kBthBytes + roce::kRethBytes + roce::kIcrcBytes
                              : overhead_bytes_) +
                         config.wire_overhead_bytes,
      .burst_bytes = config.burst_bytes,
      .receive_bytes = config.receive_bytes,
      .jitter = config.jitter,
      .pause = config.pause,
      .paths = config.paths,
      .flows = config.flows,
      .queue_pairs = std::bit_ceil(config.queue_pairs),
      .regions = config.regions,
      .software = true,
      .paces_packets = true,
      .sees_ecn = config.sees_ecn,
      .times_arrivals = config.wire_mode == WireMode::kExtended,
      .sends = config.wire_mode != WireMode::kExtended,
      .reads = config.wire_mode != WireMode::kExtended,
      .counts_silent_packets = true,
      .networks = networks_of(config.wire_mode),
  };
  if (config.in_place_bytes > 0) {  // for all packets of a joined datagram
    together_.reserve(kMostJoined);
    in_one_piece_.reserve(wire::kMaxDatagramBytes);
  }
  if (speaks_standard()) {  // its key is not advertised, so peers can only send to it
    standby_key_ = memory_.add(standby_rooms_.data(), standby_rooms_.bytes(), Access::kRemoteWrite)
                       .value()
                       .key;
  }
  if (config_.security != Security::kOff && config_.wire_mode != WireMode::kRoce) {
    keys_.emplace(config_.key_seed ? *config_.key_seed : random_secret(random_));
  }
}

SoftNic::~SoftNic() = default;

void SoftNic::deregister_memory(const MemoryRegion& region) {
  if (!memory_.remove(region.key)) return;
  ++invalidations_;
  for (size_t left = posted_.size(); left > 0; --left) {
    const uint32_t slot = posted_.take();
    QueuePair& qp = *queue_pairs_[slot];
    if (!qp.has_requests()) continue;
    posted_.add(slot);
    qp.revoke(region.key);
    // Requests of which nothing was sent have failed already.
    if (qp.rc && qp.state == QueuePair::State::kConnected) events_.add(slot);
    wake(qp);
  }
}

Result<QueuePairId> SoftNic::create_queue_pair(const QueuePairConfig& config) {
  PACECAR_CHECK(config.flow < config_.flows);
  const bool used_before = !free_slots_.empty();
  if (!used_before && unused_slots_ == caps_.queue_pairs) {
    return fail(
        ErrorCode::kUnavailable,
        "all queue pairs of the NIC are used: close connections or raise PACECAR_MAX_FLOWS");
  }
  const uint32_t slot = used_before ? free_slots_.back() : unused_slots_;
  auto qp = std::make_unique<QueuePair>();
  qp->config = config;
  qp->receives = FixedQueue<ReceiveRequest>(config.receives);
  qp->id = next_number(slot);
  qp->local = SoftEndpoint{
      .address = config_.address,
      .queue_pair = qp->id,
      .first_psn = random_() & static_cast<uint32_t>(kPsnMask),
      .window_packets = window(config),
      .writes = config.work_requests,
      .mtu = static_cast<uint32_t>(config_.mtu),
      .full_checksum = config_.full_checksum,
      .security = config_.security,
  };
  if (keys_) {
    qp->local.public_key = keys_->public_key();
    qp->local.salt = uint64_t{random_()} << 32 | random_();
  }
  if (speaks_standard() && config.receives == 0 && config.service == Service::kConnected) {
    qp->standby = RcLane{.queue_pair = next_number(slot + caps_.queue_pairs),
                         .first_psn = random_() & static_cast<uint32_t>(kPsnMask)};
  }
  flows_.make(config.flow + 1);
  if (config.receive_queue) qp->shared_receives = receive_queues_[*config.receive_queue].get();
  if (config.service != Service::kConnected) {
    qp->config.paced = false;  // until it is connected
  } else if (config.paced) {
    flows_.join(config.flow, slot);
  }
  const QueuePairId id = qp->id;
  if (config.general_services) general_services_ = id;
  used_before ? free_slots_.pop_back() : void(++unused_slots_);
  queue_pairs_[slot] = std::move(qp);
  return id;
}

uint32_t SoftNic::next_number(uint32_t slot) {
  const auto slots = static_cast<uint32_t>(queue_pairs_.size());
  const uint32_t prefix = config_.port_slot.value_or(0) << roce::kSlotShift;
  const uint32_t mask = config_.port_slot ? (1U << roce::kSlotShift) - 1 : kPsnMask;
  if (((next_generation_ * slots) & mask) == 0) ++next_generation_;  // 0 and 1 are taken
  return prefix | ((next_generation_++ * slots | slot) & mask);
}

QueuePairAddress SoftNic::queue_pair_address(QueuePairId id) const {
  const QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr);
  return encode(qp->local, offers_extended(qp->config), qp->standby);
}

Result<void> SoftNic::connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr && qp->state == QueuePair::State::kCreated);
  ASSIGN_OR_RETURN(auto peer, decode_endpoint(remote));
  if (!peer.extended || !offers_extended(qp->config)) {
    return connect_standard(*qp, peer);
  }
  return connect_extended(*qp, *peer.extended);
}

uint32_t SoftNic::window(const QueuePairConfig& config) const {
  return config.paced ? config_.window_packets : kControlWindowPackets;
}

uint32_t SoftNic::send_window(const QueuePairConfig& config) const {
  return config.posts ? window(config) : 1;
}

uint32_t SoftNic::work_requests(const QueuePairConfig& config) {
  return config.posts ? config.work_requests : 0;
}

// Control writes keep to one path, so that they do not overtake each other and the newest arrives
// last.
PathPolicy SoftNic::path_policy(const QueuePairConfig& config) const {
  if (!config.posts) return PathPolicy::kFixed;
  return config.paced ? config_.path_policy : PathPolicy::kSticky;
}

QueuePairMemory SoftNic::queue_pair_memory(const QueuePairConfig& config) const {
  if (config_.wire_mode == WireMode::kRoce) return {.state = standard_state(config), .queues = 0};
  const Bytes queues =
      SendWindow::queue_bytes(send_window(config)) + 2 * ReceiveWindow::queue_bytes(window(config));
  const Bytes state = sizeof(QueuePair) + Requester::work_request_bytes(work_requests(config)) +
                      WriteTracker::bytes(config.work_requests) +
                      PathSelector::bytes(path_policy(config), config_.paths) +
                      (keys_ ? PacketGuard::bytes(replay_window()) : 0);
  return config.paced ? QueuePairMemory{state, queues} : QueuePairMemory{state + queues, 0};
}

void SoftNic::destroy_queue_pair(QueuePairId id) {
  QueuePair* qp = find(id);
  if (qp == nullptr) return;
  detach(*qp);
  const uint32_t slot = slot_of(*qp);
  queue_pairs_[slot].reset();
  free_slots_.push_back(slot);
  wake_readers();
}

size_t SoftNic::post(QueuePairId id, std::span<const WorkRequest> work_requests) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr && qp->state != QueuePair::State::kCreated);
  if (qp->state != QueuePair::State::kConnected) return 0;
  if (!qp->rc) work_requests = leading_writes(work_requests);
  for (const WorkRequest& work_request : work_requests) {
    PACECAR_CHECK(work_request.length == 0 ||
                  memory_.covers(work_request.local_key, work_request.local, work_request.length));
    PACECAR_CHECK(work_request.length <= (qp->rc ? roce::kMaxMessageBytes : 0xFFFF'FFFF));
  }
  if (qp->requester && qp->requester->round_trip() == Duration()) ask_siblings(*qp);
  const size_t accepted = qp->post(work_requests);
  if (accepted == 0) return 0;
  posted_.add(slot_of(*qp));
  if (qp->rc && qp->rc->requester.has_completed()) events_.add(slot_of(*qp));
  wake(*qp);
  return accepted;
}

size_t SoftNic::poll(std::span<Completion> completions) {
  size_t count = 0;
  while (count < completions.size() && !received_.empty()) {
    const Completion& received = received_.front();
    if (find(received.queue_pair) != nullptr) completions[count++] = received;
    received_.pop_front();
  }
  while (count < completions.size() && !events_.empty()) {
    QueuePair& qp = *queue_pairs_[events_.front()];
    Completion completion{.queue_pair = qp.id, .kind = CompletionKind::kSent};
    WorkRequest work_request;
    if (qp.pop_completed(&work_request, &completion.status)) {
      if (!work_request.signaled && completion.status == CompletionStatus::kOk) continue;
      completion.work_request = work_request.id;
      completions[count++] = completion;
      continue;
    }
    if (qp.state == QueuePair::State::kBroken) {
      completions[count++] = breaking_of(qp);
    }
    events_.take();
  }
  return count;
}

void SoftNic::set_flow_limits(FlowId index, const FlowLimits& limits, Instant now) {
  flows_.make(index + 1);
  Flow& flow = flows_[index];
  flow.gate.set_limits(limits, now);
  // With packets paced one by one, bursts are only for hosts that cannot keep up.
  const Bytes catch_up = flow.gate.burst() * FlowGate::kCatchUpBursts;
  flow.repaid = config_.jitter == Duration() || config_.burst_bytes > config_.mtu
                    ? Duration()
                    : std::max(config_.jitter, limits.rate.time_for(catch_up));
  flow.sparse = limits.rate.time_for(config_.mtu) > config_.ack.delay / 2;
  make_ready(index);
}

void SoftNic::on_time(Instant now) {
  std::array<uint32_t, 64> due;
  size_t count = 0;
  do {
    count = timers_.expire(now, due);
    for (size_t i = 0; i < count; ++i) {
      if (due[i] >= queue_pairs_.size()) {
        flows_.ready().add(due[i] - static_cast<uint32_t>(queue_pairs_.size()));
      } else if (queue_pairs_[due[i]] != nullptr) {
        on_queue_pair_timeout(*queue_pairs_[due[i]], now);
      }
    }
  } while (count == due.size());
}

Instant SoftNic::next_deadline() const {
  if (!naks_.empty() || !acks_.empty() || !controls_.empty() || !flows_.ready().empty())
    return Instant();
  if (later_.empty()) return timers_.next_deadline();
  const Instant ack_deadline = queue_pairs_[later_.front()]->ack_deadline;
  return std::min({ack_deadline, quiet_at_, timers_.next_deadline()});
}

void SoftNic::on_queue_pair_timeout(QueuePair& qp, Instant now) {
  if (qp.state != QueuePair::State::kConnected) return;
  if (qp.rc && !qp.rc->recovery.up()) return on_lane_timeout(qp, now);
  const Bytes in_flight_before = qp.in_flight();
  SendProgress progress;
  switch (qp.on_timeout(now, &progress)) {
    case SendTimeout::kNotYet:
      break;
    case SendTimeout::kPeerDead:
      break_queue_pair(qp, qp.rc ? qp.rc->requester.failure() : CompletionStatus::kRetryExceeded);
      return;
    case SendTimeout::kRepair:
      if (progress.timed_out || progress.lost > 0) {
        ++counters_.timeouts;
        on_progress(qp, in_flight_before, progress);
        wake_readers();
      }
      wake(qp);
      break;
  }
  arm_timeout(qp);
}

QueuePair* SoftNic::find(QueuePairId id) const {
  QueuePair* qp = queue_pairs_[id & (queue_pairs_.size() - 1)].get();
  return qp != nullptr && qp->id == id ? qp : nullptr;
}

QueuePair* SoftNic::find_end(uint32_t number) {
  QueuePair* qp = queue_pairs_[number & (queue_pairs_.size() - 1)].get();
  return qp != nullptr && qp->local.queue_pair == number ? qp : nullptr;
}

uint32_t SoftNic::slot_of(const QueuePair& qp) const {
  return qp.local.queue_pair & static_cast<uint32_t>(queue_pairs_.size() - 1);
}

void SoftNic::wake(QueuePair& qp) {
  if (qp.config.paced) {  // another queue pair of the flow may have waited for the window
    // A flow without work is not made ready, so that next_deadline() is not "at once".
    if (has_work(flows_[qp.config.flow])) make_ready(qp.config.flow);
  } else if (qp.state == QueuePair::State::kConnected && qp.has_work()) {
    controls_.add(slot_of(qp));
  }
}

// Acknowledgements of packets in order may wait a little, so that one covers several packets.
void SoftNic::want_ack(QueuePair& qp, Instant now, bool at_once) {
  if (at_once || much_unacknowledged(qp)) {
    acks_.add(slot_of(qp));
    return;
  }
  if (config_.ack.delay == Duration::max()) return;
  quiet_at_ = now + config_.ack.quiet;
  if (later_.listed(slot_of(qp))) return;
  qp.ack_deadline = now + config_.ack.delay;
  later_.add(slot_of(qp));
}

void SoftNic::arm_timeout(const QueuePair& qp) { timers_.arm(slot_of(qp), qp.deadline()); }

void SoftNic::on_progress(QueuePair& qp, Bytes in_flight_before, const SendProgress& progress) {
  if (!qp.config.paced) return;
  Flow& flow = flows_[qp.config.flow];
  flow.gate.on_done(in_flight_before - qp.in_flight());
  if (progress.rtt.ns() != 0) flow.signal.rtt = progress.rtt;
  flow.signal.rerouting |= qp.rerouting();
  flow.signal.acked += progress.acked;
  flow.signal.marked += progress.marked;
  flow.signal.lost += progress.lost;
  flow.signal.trimmed += progress.trimmed;
  if (progress.trimmed_rtt.ns() != 0) flow.signal.trimmed_rtt = progress.trimmed_rtt;
  flow.signal.timed_out |= progress.timed_out;
  flows_.report(qp.config.flow);
}

}  // namespace pacecar
