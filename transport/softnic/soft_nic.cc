#include "transport/softnic/soft_nic.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

// How much earlier than its deadline an acknowledgement leaves right after a burst of data.
constexpr Duration kInPassing = Duration::from_us(40);

std::vector<std::string> networks_of(const NicCore& core) {
  std::vector<std::string> names;
  if (core.speaks_extended()) {
    names.emplace_back(is_ipv4(core.config.address) ? kSoftNetwork : kSoft6Network);
  }
  if (core.speaks_standard()) names.emplace_back(kRoceNetwork);
  return names;
}

NicCaps make_caps(const NicCore& core, Bytes extended_overhead) {
  const SoftNicConfig& config = core.config;
  const Bytes overhead = core.speaks_extended()
                             ? extended_overhead
                             : roce::kBthBytes + roce::kRethBytes + roce::kIcrcBytes;
  return {
      .line_rate = config.line_rate,
      .mtu = config.mtu,
      .packet_overhead = overhead + config.wire_overhead_bytes,
      .burst_bytes = config.burst_bytes,
      .receive_bytes = config.receive_bytes,
      .jitter = config.jitter,
      .pause = config.pause,
      .paths = config.paths,
      .flows = config.flows,
      .queue_pairs = core.user_slots(),
      .regions = config.regions,
      .software = true,
      .paces_packets = true,
      .sees_ecn = config.sees_ecn,
      .times_arrivals = !core.speaks_standard(),
      .counts_silent_packets = true,
      .networks = networks_of(core),
  };
}

// How the peer broke a queue pair, by the status alone.
const char* fault_of(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::kReceiverNotReady:
      return "has posted no receive request within the limit: let it post more of them";
    case CompletionStatus::kLocalError:
      return "answered a read in packets of another size: use the same MTU on both sides";
    default: return nullptr;
  }
}

}  // namespace

SoftNic::SoftNic(const SoftNicConfig& config, RandomSource random, Instant now)
    : core_(config, random, now),
      roce_packets_(core_),
      rc_(core_, roce_packets_),
      datagrams_(core_, roce_packets_),
      rc_receiver_(rc_, datagrams_),
      extended_(core_),
      extended_receiver_(
          extended_,
          [this](Instant then, const RxPacket& packet) { rc_receiver_.on_packet(then, packet); }),
      receive_queues_(config.receive_queues) {
  caps_ = make_caps(core_, extended_.overhead_bytes);
}

// The destructors of ends use what the ends share, so the ends go first.
SoftNic::~SoftNic() {
  for (auto& qp : core_.queue_pairs) qp.reset();
}

size_t SoftNic::poll_transmit(Instant now, std::span<TxPacket> packets) {
  core_.slab.clear();
  size_t count = 0;
  if (core_.config.control_first) {
    count = core_.scheduler.transmit_control(now, packets);
    count += transmit_answers(now, now, packets.subspan(count));
    return count + transmit_flows(now, packets.subspan(count));
  }
  // A burst of data goes first, because the application waits for it; acknowledgements are sent
  // while the peer processes the burst.
  if (core_.scheduler.any_ready()) count = core_.scheduler.transmit_flow(now, packets);
  const Instant deadline = count > 0 ? now + kInPassing : now;
  count += core_.scheduler.transmit_control(now, packets.subspan(count));
  count += transmit_answers(deadline, now, packets.subspan(count));
  return count + transmit_flows(now, packets.subspan(count));
}

size_t SoftNic::transmit_flows(Instant now, std::span<TxPacket> out) {
  size_t count = 0;
  while (count < out.size() && core_.scheduler.any_ready() &&
         core_.slab.room() >= extended_.slab_bytes) {
    count += core_.scheduler.transmit_flow(now, out.subspan(count));
  }
  return count;
}

// Sends refusals, and the acknowledgements and responses that are due at `deadline`.
size_t SoftNic::transmit_answers(Instant deadline, Instant now, std::span<TxPacket> out) {
  core_.acks.advance(deadline, now);
  size_t count = extended_receiver_.transmit_refusals(out);
  while (core_.acks.any_due() && count < out.size()) {
    QueuePair& qp = core_.acks.next_due();
    const size_t answers = qp.end->transmit_answers(now, out.subspan(count));
    if (answers == 0 && core_.acks.is_due(qp.slot)) break;  // the slab has no room
    count += answers;
  }
  return count;
}

void SoftNic::fail_rc_connections(Instant now) {
  for (RcEnd* end : rc_.ends) {
    if (end == nullptr || end->queue_pair().internal || !end->recovery().open()) continue;
    end->recovery().fail(CompletionStatus::kLocalError, now);
  }
}

void SoftNic::on_time(Instant now) {
  const auto slots = static_cast<uint32_t>(core_.queue_pairs.size());
  std::array<uint32_t, 64> due;
  size_t count = 0;
  do {
    count = core_.timers.expire(now, due);
    for (size_t i = 0; i < count; ++i) {
      if (due[i] >= slots) {
        core_.scheduler.flows().ready().add(due[i] - slots);
      } else if (QueuePair* qp = core_.queue_pairs[due[i]].get();
                 qp != nullptr && qp->connected()) {
        qp->end->on_timeout(now);
      }
    }
  } while (count == due.size());
}

Instant SoftNic::next_deadline() const {
  if (extended_receiver_.any_refusals() || !core_.scheduler.idle()) return Instant();
  return std::min(core_.acks.next_deadline(), core_.timers.next_deadline());
}

QueuePair& SoftNic::get(QueuePairId id) const {
  QueuePair* qp = core_.find(id);
  PACECAR_CHECK(qp != nullptr);
  return *qp;
}

Result<QueuePairId> SoftNic::create_queue_pair(const QueuePairConfig& config) {
  PACECAR_CHECK(config.flow < core_.config.flows);
  const bool used_before = !free_slots_.empty();
  if (!used_before && first_unused_slot_ == caps_.queue_pairs) {
    return fail(
        ErrorCode::kUnavailable,
        "all queue pairs of the NIC are used: close connections or raise PACECAR_MAX_FLOWS");
  }
  const uint32_t slot = used_before ? free_slots_.back() : first_unused_slot_;
  auto qp = std::make_unique<QueuePair>();
  qp->slot = slot;
  qp->config = config;
  qp->receives = ReceiveQueue(config.receives);
  qp->id = core_.next_number(slot);
  qp->local = SoftEndpoint{
      .address = core_.config.address,
      .queue_pair = qp->id,
      .first_psn = core_.random_psn(),
      .window_packets = window_packets(core_.config, config),
      .writes = config.work_requests,
      .mtu = static_cast<uint32_t>(core_.config.mtu),
      .full_checksum = core_.config.full_checksum,
      .security = core_.config.security,
  };
  extended_.keys.announce(qp->local, core_.random);
  if (core_.speaks_standard() && config.receives == 0 && config.service == Service::kConnected) {
    qp->standby = RcLane{.queue_pair = core_.next_number(slot + caps_.queue_pairs),
                         .first_psn = core_.random_psn()};
  }
  if (config.receive_queue) qp->shared_receives = receive_queues_[*config.receive_queue].get();
  if (config.service != Service::kConnected) qp->config.paced = false;  // until it is connected
  core_.scheduler.join(*qp);
  const QueuePairId id = qp->id;
  if (config.general_services) datagrams_.general_services = id;
  if (used_before) {
    free_slots_.pop_back();
  } else {
    ++first_unused_slot_;
  }
  core_.queue_pairs[slot] = std::move(qp);
  return id;
}

QueuePairAddress SoftNic::queue_pair_address(QueuePairId id) const {
  const QueuePair& qp = get(id);
  return encode(qp.local, offers_extended(qp.config), qp.standby);
}

Result<void> SoftNic::connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) {
  QueuePair& qp = get(id);
  PACECAR_CHECK(qp.state == QueuePair::State::kCreated);
  ASSIGN_OR_RETURN(auto peer, decode_endpoint(remote));
  if (peer.extended && offers_extended(qp.config)) {
    return ExtendedEnd::connect(extended_, qp, *peer.extended);
  }
  return RcEnd::connect(rc_, qp, peer);
}

Result<void> SoftNic::connect_standard(QueuePairId id, const StandardPeer& peer) {
  QueuePair& qp = get(id);
  PACECAR_CHECK(qp.state == QueuePair::State::kCreated);
  PACECAR_CHECK(qp.config.service == Service::kStandard && peer.flow < core_.config.flows);
  return RcEnd::connect(rc_, qp, peer);
}

void SoftNic::start_sending(QueuePairId id, const StandardSending& sending) {
  RcEnd* end = rc_.ends[slot_of(id)];
  PACECAR_CHECK(end != nullptr && get(id).config.service == Service::kStandard);
  end->requester().start(sending, wide_psn(sending.first_psn));
}

void SoftNic::open_datagrams(QueuePairId id, uint32_t queue_key) {
  QueuePair& qp = get(id);
  PACECAR_CHECK(qp.state == QueuePair::State::kCreated);
  PACECAR_CHECK(qp.config.service == Service::kDatagram);
  DatagramEnd::open(datagrams_, qp, queue_key);
}

std::string SoftNic::peer(QueuePairId id) const {
  const QueuePair* qp = core_.find(id);
  return qp == nullptr ? std::string() : to_string(qp->remote.address);
}

QueuePairMemory SoftNic::queue_pair_memory(const QueuePairConfig& config) const {
  if (!core_.speaks_extended()) return {.state = RcEnd::memory(config), .queues = 0};
  return ExtendedEnd::memory(extended_, config);
}

Duration SoftNic::silence(QueuePairId id, Instant now) const {
  const QueuePair* qp = core_.find(id);
  return qp == nullptr || qp->end == nullptr ? Duration() : qp->end->silence(now);
}

std::string SoftNic::fault(QueuePairId id) const {
  const QueuePair* qp = core_.find(id);
  if (qp == nullptr || qp->state != QueuePair::State::kBroken) return {};
  const char* what = qp->fault;
  if (what == nullptr && qp->end != nullptr) what = qp->end->fault();
  if (what == nullptr && qp->broken_by == CompletionStatus::kRetryExceeded) {
    return fmt::format(
        "the peer at {} has not answered {} (UDP) within the limit (0.6 of PACECAR_TIMEOUT): check "
        "that it runs, still has that address and a route to this one (NAT?), and that no firewall "
        "drops these ports (PACECAR_PORTS sets the range){}",
        peer(id), to_string(qp->local.address),
        core_.speaks_extended()
            ? ""
            : fmt::format("; and that the path carries packets with {} bytes of "
                          "payload (PACECAR_MTU)",
                          core_.config.mtu));
  }
  if (what == nullptr) what = fault_of(qp->broken_by);
  return what == nullptr ? std::string() : fmt::format("the peer at {} {}", peer(id), what);
}

void SoftNic::halt_queue_pair(QueuePairId id) {
  QueuePair* qp = core_.find(id);
  if (qp != nullptr && qp->connected()) qp->end->halt();
}

void SoftNic::break_queue_pair(QueuePairId id) {
  core_.break_queue_pair(get(id), CompletionStatus::kLocalError);
}

void SoftNic::destroy_queue_pair(QueuePairId id) {
  QueuePair* qp = core_.find(id);
  if (qp == nullptr) return;
  const uint32_t slot = qp->slot;
  core_.detach(*qp);
  core_.queue_pairs[slot].reset();
  free_slots_.push_back(slot);
  rc_.wake_readers();
}

void SoftNic::reset_queue_pair(QueuePairId id) {
  QueuePair& qp = get(id);
  PACECAR_CHECK(qp.config.service != Service::kConnected);
  break_queue_pair(id);  // its flow goes on without its posted requests
  core_.detach(qp);
  qp.config.paced = false;
  qp.receives.clear();
  rc_.wake_readers();
  qp.unacknowledged_bytes = 0;
  qp.unacknowledged_packets = 0;
  qp.state = QueuePair::State::kCreated;
  // Drop its completions of receives that were not polled, too.
  core_.received.erase_if([&](const Completion& it) { return it.queue_pair == id; });
}

std::shared_ptr<void> SoftNic::deregister_memory(const MemoryRegion& region) {
  if (core_.memory.remove(region.key)) revoke({.key = region.key});
  return nullptr;
}

void SoftNic::on_refused(uint64_t packets, const uint8_t* unreadable) {
  core_.counters.packets_refused += packets;
  if (unreadable != nullptr) revoke({.at = unreadable});
}

void SoftNic::revoke(const GoneMemory& gone) {
  ++core_.invalidations;
  for (size_t left = core_.posted.size(); left > 0; --left) {
    const uint32_t slot = core_.posted.take();
    QueuePair& qp = *core_.queue_pairs[slot];
    if (!qp.end->has_requests()) continue;
    core_.posted.add(slot);
    qp.end->revoke(gone);
    core_.scheduler.wake(qp);
  }
}

size_t SoftNic::post(QueuePairId id, std::span<const WorkRequest> work_requests) {
  QueuePair& qp = get(id);
  PACECAR_CHECK(qp.state != QueuePair::State::kCreated);
  if (!qp.connected()) return 0;
  const size_t accepted = qp.end->post(work_requests);
  if (accepted == 0) return 0;
  core_.posted.add(qp.slot);
  core_.scheduler.wake(qp);
  return accepted;
}

size_t SoftNic::post_datagrams(QueuePairId id, std::span<const Datagram> datagrams) {
  DatagramEnd* end = datagrams_.ends[get(id).slot];
  return end == nullptr ? 0 : end->post_datagrams(datagrams);
}

Result<ReceiveQueueId> SoftNic::create_receive_queue(uint32_t receives) {
  const auto free = std::find(receive_queues_.begin(), receive_queues_.end(), nullptr);
  if (free == receive_queues_.end()) {
    return fail(ErrorCode::kUnavailable, "all shared receive queues of the NIC are used");
  }
  *free = std::make_unique<ReceiveQueue>(receives);
  return static_cast<ReceiveQueueId>(free - receive_queues_.begin());
}

size_t SoftNic::post_receives(QueuePairId id, std::span<const ReceiveRequest> requests) {
  QueuePair& qp = get(id);
  return core_.speaks_standard() ? push_receives(qp.receives, requests) : 0;
}

size_t SoftNic::push_receives(ReceiveQueue& queue, std::span<const ReceiveRequest> requests) const {
  size_t taken = 0;
  for (const ReceiveRequest& request : requests) {
    PACECAR_CHECK(request.length == 0 ||
                  core_.memory.owner_may_write(request.local_key, request.local, request.length));
    if (!queue.push(request)) break;
    ++taken;
  }
  return taken;
}

size_t SoftNic::poll(std::span<Completion> completions) {
  size_t count = 0;
  FixedQueue<Completion>& received = core_.received;
  while (count < completions.size() && !received.empty()) {
    if (core_.find(received.front().queue_pair) != nullptr) {
      completions[count++] = received.front();
    }
    received.pop_front();
  }
  while (count < completions.size() && !core_.events.empty()) {
    QueuePair& qp = *core_.queue_pairs[core_.events.front()];
    Completion completion{.queue_pair = qp.id, .kind = CompletionKind::kSent};
    WorkRequest work_request;
    if (qp.end != nullptr && qp.end->pop_completed(&work_request, &completion.status)) {
      if (!work_request.signaled && completion.status == CompletionStatus::kOk) continue;
      completion.work_request = work_request.id;
      completions[count++] = completion;
      continue;
    }
    if (qp.state == QueuePair::State::kBroken) {
      completions[count++] = {
          .queue_pair = qp.id, .kind = CompletionKind::kBroken, .status = qp.broken_by};
    }
    core_.events.take();
  }
  return count;
}

}  // namespace pacecar
