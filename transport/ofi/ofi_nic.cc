// Making a NIC and its queue pairs; registering memory and revoking it at the peers.
#include "transport/ofi/ofi_nic.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/random_word.h"
#include "transport/base/return_if_error.h"
#include "transport/ofi/wait_limit.h"

namespace pacecar {
namespace {

constexpr uint32_t kOperations = 1 << 13;
constexpr size_t kReceived = 1 << 13;
// How long a lost bond lane's peer may take to answer; meanwhile messages wait for another lane.
constexpr Duration kHaltLimit = Duration::from_ms(50);

}  // namespace

Result<std::unique_ptr<OfiNic>> OfiNic::open(const OfiConfig& config, OfiProvider provider,
                                             Instant now) {
  ASSIGN_OR_RETURN(auto domain, OfiDomain::open(std::move(provider), config.name, kOperations));
  std::unique_ptr<OfiNic> nic(new OfiNic(config, std::move(domain), now));
  RETURN_IF_ERROR(nic->open_endpoints());
  return nic;
}

OfiNic::OfiNic(const OfiConfig& config, OfiDomain domain, Instant now)
    : PacedNic(make_caps(config, domain), config.address, std::bit_ceil(2 * config.queue_pairs),
               kReceived, random_word(), now),
      config_(config),
      domain_(std::move(domain)),
      endpoints_(domain_),
      notification_(config.notification.value_or(domain_.traits().notification)),
      memory_(domain_, config.regions),
      rings_(queue_pairs_.size()),
      ring_regions_(rings_.size()),
      operations_(kOperations),
      with_messages_(queue_pairs_.size()),
      blocked_(queue_pairs_.size()),
      leaving_(queue_pairs_.size()),
      next_watch_(now) {
  PACECAR_CHECK(config.paths > 0);
}

// Notifies the peers, so that they need not wait for us. Meanwhile, and while its endpoints close,
// a software provider may still place writes that have arrived. So only our own memory stays
// registered: the application may have freed its memory already.
OfiNic::~OfiNic() {
  const bool software = !domain_.traits().device;
  if (software) memory_.clear();
  for (const uint32_t slot : live_) {
    QueuePair& qp = *queue_pairs_[slot];
    const bool notified = qp.gone_sent && qp.outbox.empty();  // its kGone may still be queued
    // It may overtake writes of software on another connection, whose end shows that we are gone.
    const bool writes = software && domain_.traits().connects && qp.started > 0;
    if (notified || writes || qp.peer_dead || !qp.mailbox.has_reserved_room()) continue;
    send_message(qp, {.message = {.kind = OfiMessage::Kind::kGone}});
  }
  if (software) ring_regions_.clear();
  close_endpoints();
}

// The poll processes the provider's own messages that have arrived: otherwise verbs;ofi_rxm 1.17
// processes them while it closes, and crashes.
void OfiNic::close_endpoints() {
  if (domain_.traits().device && !failed_) domain_.poll();
  endpoints_.close();
}

Result<void> OfiNic::open_endpoints() {
  RETURN_IF_ERROR(endpoints_.open(config_.paths));
  memory_.use(endpoints_.first().endpoint());
  caps_.paths = static_cast<uint32_t>(endpoints_.for_data());
  return {};
}

NicCaps OfiNic::make_caps(const OfiConfig& config, const OfiDomain& domain) {
  const OfiTraits& traits = domain.traits();
  const Bytes usual = traits.device ? kDefaultChunk : kSoftwareChunk;
  const Bytes wanted = config.chunk != 0 ? config.chunk : usual;
  const Bytes chunk =
      std::clamp<Bytes>(wanted, std::min(traits.mtu, traits.max_write), traits.max_write);
  return {.line_rate = choose_line_rate(config.line_rate, traits.speed),
          .mtu = traits.mtu,
          .burst_bytes = chunk,
          .jitter = traits.device ? kPollJitter : kSoftwareJitter,
          .pause = kSchedulerPause,
          .flows = config.flows,
          .queue_pairs = config.queue_pairs,
          .regions = config.regions,
          .write_bytes = chunk,
          .software = !traits.gpu_memory,
          .paces_packets = false,
          .manual_progress = !traits.device,
          .dma_buf = traits.gpu_memory,
          .silent_writes_wake = domain.wakes(),
          .networks = {"ofi:" + domain.provider().name}};
}

Result<QueuePairId> OfiNic::create_queue_pair(const QueuePairConfig& config) {
  PACECAR_CHECK(config.flow < flows_.size() && config.receives == 0);
  if (failed_) {
    return fail(ErrorCode::kSystem, domain_.name() + " has failed: use another NIC (PACECAR_NICS)");
  }
  ASSIGN_OR_RETURN(const QueuePairId id, next_id());
  const uint32_t slot = slot_of(id);
  // Each queue pair's rings have a key of their own, so that a peer cannot write to others' rings.
  // The slot's previous key was valid until now: a late message's wrong key may end a connection.
  ASSIGN_OR_RETURN(ring_regions_[slot], memory_.add_own(&rings_[slot], sizeof(OfiRings)));
  auto qp = std::make_unique<QueuePair>(id, config, rings_[slot]);
  qp->rings_descriptor = ring_regions_[slot].descriptor();
  add(std::move(qp));
  return id;
}

QueuePairAddress OfiNic::queue_pair_address(QueuePairId id) const {
  const QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr);
  const OfiRegistrations::Region& rings = ring_regions_[slot_of(id)];
  return encode({.provider = ofi_provider_tag(provider().name),
                 .secret = qp->secret,
                 .rings = rings.place,
                 .rings_key = rings.provider_key,
                 .endpoints = endpoints_.names()});
}

Result<void> OfiNic::connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr);
  if (qp->state == QueuePair::State::kBroken) return fail(ErrorCode::kSystem, qp->fault);
  PACECAR_CHECK(qp->state == QueuePair::State::kCreated);
  ASSIGN_OR_RETURN(auto address, decode_ofi_address(remote));
  if (address.provider != ofi_provider_tag(provider().name)) {
    return fail(ErrorCode::kPeer,
                fmt::format("{} and the peer's NIC are of different providers of libfabric: choose "
                            "the same on both sides with PACECAR_NICS",
                            domain_.name()));
  }
  ASSIGN_OR_RETURN(qp->peers, endpoints_.add_peer(address));
  qp->remote = std::move(address);
  qp->peer = endpoints_.first().text_of(qp->remote.endpoints.front());
  qp->mailbox.join(qp->remote.secret);
  qp->state = QueuePair::State::kConnected;
  qp->since = now_;
  live_.push_back(slot_of(id));
  return {};
}

QueuePairMemory OfiNic::queue_pair_memory(const QueuePairConfig& config) const {
  return {.state = sizeof(QueuePair) + sizeof(OfiRings) +
                   config.work_requests * sizeof(WorkRequest) +
                   QueuePair::kMaxWaiting * sizeof(OfiQueuePair::QueuedMessage),
          .queues = 0};
}

void OfiNic::break_queue_pair(QueuePair& qp, CompletionStatus status, std::string_view what,
                              std::string_view cure) {
  break_queue_pair(qp, status, describe_fault(place_of(qp), what, cure));
}

void OfiNic::break_queue_pair(QueuePair& qp, const OfiFailure& failure) {
  break_queue_pair(qp, ofi_error_info(failure).status, describe_fault(place_of(qp), failure));
}

void OfiNic::break_queue_pair(QueuePair& qp, CompletionStatus status, std::string fault) {
  if (qp.leaving()) return step_leaving(qp);
  if (qp.state == QueuePair::State::kBroken) return;
  qp.state = QueuePair::State::kBroken;
  qp.broken_by = status;
  qp.fault = std::move(fault);
  qp.outbox.clear();
  qp.asked.reset();
  completed_.add(slot_of(qp.id));
  step_leaving(qp);
}

void OfiNic::destroy_queue_pair(QueuePairId id) {
  QueuePair* qp = find(id);
  if (qp == nullptr) return;
  const bool joined = qp->state != QueuePair::State::kCreated && !qp->peers.empty();
  // Its operations may never end, and its flow's number is used again.
  for (const OfiOperation& operation : operations_.all()) {
    if (operation.queue_pair == id) release_window(operation);
  }
  qp->state = QueuePair::State::kLeaving;
  if (!qp->gone_sent) qp->outbox.clear();
  qp->asked.reset();
  leave(*qp);
  if (!joined) return forget(slot_of(id));
  step_leaving(*qp);
  sweep();
}

// A write is no longer in its flow's window.
void OfiNic::release_window(const OfiOperation& operation) {
  if (operation.kind != OfiOperation::Kind::kWrite) return;
  const QueuePair* qp = find_any(operation.queue_pair);
  if (qp == nullptr || qp->leaving() || !qp->config.paced) return;
  flows_.on_done(qp->config.flow, operation.bytes);
}

// A broken queue pair sends kGone only to a peer that has left, as that peer waits for it.
void OfiNic::step_leaving(QueuePair& qp) {
  const bool leaving = qp.leaving();
  const bool broken = qp.state == QueuePair::State::kBroken;
  if (!leaving && !(broken && qp.peer_gone)) return;
  if (!qp.gone_sent && !qp.peer_dead && qp.started == 0 && qp.outbox.empty()) {
    qp.gone_sent = true;
    queue_message(qp, {.kind = OfiMessage::Kind::kGone});
  }
  if (leaving) leaving_.add(slot_of(qp.id));
}

// Frees leaving queue pairs that have nothing more to send or to wait for.
void OfiNic::sweep() {
  for (size_t left = leaving_.size(); left > 0; --left) {
    const uint32_t slot = leaving_.take();
    const QueuePair& qp = *queue_pairs_[slot];
    const bool peer_knows = qp.peer_dead || (qp.gone_sent && qp.outbox.empty());
    if (peer_knows && qp.idle() && !qp.peer_may_write()) forget(slot);
  }
}

void OfiNic::forget(uint32_t slot) {
  for (WorkList* list : {&with_messages_, &blocked_, &leaving_}) list->remove(slot);
  std::erase(live_, slot);
  const QueuePair& qp = *queue_pairs_[slot];
  if (!failed_ && !qp.peers.empty()) endpoints_.remove_peer(qp.remote);
  erase(slot);
}

void OfiNic::reopen_endpoints(const std::string& why) {
  for (const OfiOperation& operation : operations_.all()) release_window(operation);
  close_endpoints();
  operations_.free_all();
  failed_ = !domain_.reopen_completions() || !open_endpoints();
  for (uint32_t slot = 0; slot < queue_pairs_.size(); ++slot) {
    if (queue_pairs_[slot] == nullptr) continue;
    QueuePair& qp = *queue_pairs_[slot];
    qp.peers.clear();
    qp.peer_dead = true;
    qp.started = qp.messages = 0;
    qp.outbox.clear();
    break_queue_pair(qp, CompletionStatus::kLocalError, why,
                     "connect again, and look for the first error at the peers");
  }
  sweep();
}

// A software provider may continue a write after deregistration: the peers must confirm its end.

bool OfiNic::wait_until(Duration limit, const std::function<bool()>& done) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const Instant begin_now = now_;
  WaitLimit wait(limit);
  while (!done()) {
    const auto waited = Duration::from_ns(std::chrono::nanoseconds(Clock::now() - begin).count());
    if (!wait.allows(waited)) return false;
    receive(begin_now + waited);
    retry_blocked(begin_now + waited);
    transmit_messages();
    sched_yield();
  }
  return true;
}

// A provider that has room refuses an operation only where it has no connection to the peer. Then
// neither end writes to the other's memory: for a peer that has died nobody waits.
bool OfiNic::may_write(const QueuePair& qp) const {
  if (!qp.peer_may_write()) return false;
  const OfiTraits& traits = domain_.traits();
  if (!traits.connects || !qp.blocked || operations_.in_use() >= traits.queue) return true;
  return std::ranges::any_of(queue_pairs_, [&qp](const auto& other) {
    return other != nullptr && other->peers == qp.peers && !other->idle();
  });
}

void OfiNic::revoke(QueuePair& qp, uint32_t key) {
  if (qp.peer_may_write() && !qp.gone_sent) {
    queue_message(qp, {.kind = OfiMessage::Kind::kRevoke, .key = key});
  }
}

std::shared_ptr<void> OfiNic::deregister_memory(const MemoryRegion& region) {
  const uint32_t key = region.key;
  retiring_ = key;
  for (const auto& qp : queue_pairs_) {
    if (qp == nullptr) continue;
    qp->work.revoke(key);
    if (!qp->leaving()) completed_.add(slot_of(qp->id));
    if (qp->advertised.contains(key)) revoke(*qp, key);
  }
  const auto advertised = [&] {
    return std::ranges::any_of(queue_pairs_, [this, key](const auto& qp) {
      return qp != nullptr && qp->advertised.contains(key) && may_write(*qp);
    });
  };
  // Our own writes must complete, too. No use of the memory outlives the endpoints.
  const bool unused = wait_until(config_.silence_limit, [&] { return !operations_.reads(key); });
  if (!unused || !wait_until(config_.silence_limit, [&] { return !advertised(); })) {
    for (const OfiOperation& operation : operations_.all()) {
      QueuePair* qp = operation.reads(key) ? find(operation.queue_pair) : nullptr;
      if (qp == nullptr || !qp->connected() || !operation.finishes) continue;
      finish(*qp, operation.number, CompletionStatus::kMemoryGone);
    }
    reopen_endpoints("memory was deregistered while a peer, or the provider, was using it");
  }
  memory_.remove(key);
  retiring_.reset();
  return nullptr;
}

void OfiNic::halt_queue_pair(QueuePairId id) {
  QueuePair* qp = find(id);
  if (qp == nullptr) return;
  while (receive(now_) > 0) {
  }
  qp = find(id);
  qp->halted = true;
  std::vector<uint32_t> keys(qp->advertised.begin(), qp->advertised.end());
  const auto quiet = [&] {
    for (; !keys.empty() && qp->outbox.size() < OfiRings::kMessages; keys.pop_back()) {
      revoke(*qp, keys.back());
    }
    return !may_write(*qp);
  };
  if (!wait_until(kHaltLimit, quiet)) {
    reopen_endpoints("a peer did not confirm that it writes no more");
  }
}

}  // namespace pacecar
