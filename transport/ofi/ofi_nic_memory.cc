// The part of OfiNic that registers memory and revokes it at the peers. A software provider may
// continue a write after the memory is deregistered, so the peers must confirm first that they
// write no more.
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "transport/ofi/ofi_nic.h"
#include "transport/ofi/patience.h"

namespace pacecar {
namespace {

// How long the peer of a lost bond lane may take to answer; meanwhile the messages wait for another
// lane.
constexpr Duration kHaltLimit = Duration::from_ms(50);

}  // namespace

Result<MemoryRegion> OfiNic::register_memory(void* address, size_t length, Access access) {
  return memory_.add(address, length, access);
}

Result<MemoryRegion> OfiNic::register_dmabuf(const DmaBufMemory& memory, Access access) {
  return memory_.add_dmabuf(memory, access);
}

bool OfiNic::wait_until(Duration limit, const std::function<bool()>& done) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const Instant begin_now = now_;
  Patience patience(limit);
  while (!done()) {
    const auto waited = Duration::from_ns(std::chrono::nanoseconds(Clock::now() - begin).count());
    if (!patience.lasts(waited)) return false;
    receive(begin_now + waited);
    retry_blocked(begin_now + waited);
    transmit_messages();
    sched_yield();
  }
  return true;
}

bool OfiNic::in_use(uint32_t local_key) const {
  return std::ranges::any_of(operations_.all(), [local_key](const OfiOperation& operation) {
    return operation.kind == OfiOperation::Kind::kWrite && operation.local_key == local_key;
  });
}

void OfiNic::revoke(QueuePair& qp, uint32_t key) {
  if (qp.peer_may_write() && !qp.gone_sent) {
    queue_message(qp, {.kind = OfiMessage::Kind::kRevoke, .key = key});
  }
}

void OfiNic::deregister_memory(const MemoryRegion& region) {
  const uint32_t key = region.key;
  retiring_ = key;
  for (const auto& qp : queue_pairs_) {
    if (qp == nullptr) continue;
    qp->work.revoke(key);
    if (!qp->leaving()) completed_.add(slot_of(qp->id));
    if (qp->advertised.contains(key)) revoke(*qp, key);
  }
  const auto advertised = [&] {
    return std::ranges::any_of(queue_pairs_, [key](const auto& qp) {
      return qp != nullptr && qp->peer_may_write() && qp->advertised.contains(key);
    });
  };
  // Our own writes must complete, too. No use of the memory outlives the endpoints.
  const bool unused = wait_until(config_.silence_limit, [&] { return !in_use(key); });
  if (!unused || !wait_until(config_.silence_limit, [&] { return !advertised(); })) {
    for (OfiOperation& operation : operations_.all()) {
      if (operation.kind != OfiOperation::Kind::kWrite || operation.local_key != key) continue;
      QueuePair* qp = find(operation.queue_pair);
      if (qp == nullptr || !qp->connected() || !operation.finishes) continue;
      finish(*qp, operation.number, CompletionStatus::kMemoryGone);
    }
    reopen_endpoints("memory was deregistered while a peer, or the provider, was using it");
  }
  memory_.remove(key);
  retiring_.reset();
}

void OfiNic::halt_queue_pair(QueuePairId id) {
  QueuePair* qp = find(id);
  if (qp == nullptr) return;
  while (receive(now_) > 0) {
  }
  qp = find(id);
  qp->halted = true;
  for (const uint32_t key : qp->advertised) revoke(*qp, key);
  const auto quiet = [&] { return !qp->peer_may_write(); };
  if (!wait_until(kHaltLimit, quiet)) {
    reopen_endpoints("a peer did not confirm that it writes no more");
  }
}

}  // namespace pacecar
