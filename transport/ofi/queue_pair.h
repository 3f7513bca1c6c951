// OfiQueuePair: a queue pair over libfabric, whose endpoints serve all queue pairs. It has work
// requests, the peer's regions that we may write, our regions that the peer may write, and the
// mailbox by which the two ends agree on these. OfiOperations: what the NIC has posted to the
// provider for all of them.
// Thread rule: one thread at a time.
#pragma once

#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/base/random_word.h"
#include "transport/nic/nic.h"
#include "transport/nic/paced/work_queue.h"
#include "transport/ofi/address.h"
#include "transport/ofi/host_lock.h"
#include "transport/ofi/mailbox.h"

namespace pacecar {

// A region of the peer that we may write.
struct OfiRemoteRegion {
  uint64_t address = 0;  // of its first byte, at the peer
  uint64_t place = 0;    // of its first byte, as the provider addresses it
  uint64_t provider_key = 0;
  Bytes length = 0;
  uint32_t writes = 0;   // outstanding
  bool revoked = false;  // no more writes may follow, and the peer waits for the outstanding ones

  // Written so that no sum can wrap.
  bool covers(uint64_t at, Bytes bytes) const {
    return at >= address && bytes <= length && at - address <= length - bytes;
  }
};

struct OfiQueuePair {
  enum class State : uint8_t {
    kCreated,
    kConnected,
    kBroken,
    kLeaving,  // destroyed by its owner; stays until the peer writes no more
  };
  // Most writes at the provider, and most messages that wait for the mailbox because of writes.
  static constexpr uint32_t kMaxStarted = 128;
  // Messages that wait for the mailbox: notifications of writes, and answers to the peer.
  static constexpr uint32_t kMaxWaiting = kMaxStarted + OfiRings::kMessages;
  // A peer with more refused keys than these is guessing keys: few of the 2^32 are ours.
  static constexpr uint32_t kMaxRefused = 1024;
  static constexpr uint64_t kNoNumber = ~uint64_t{0};

  OfiQueuePair(QueuePairId number, const QueuePairConfig& wanted, OfiRings& rings)
      : id(number),
        config(wanted),
        work(wanted.work_requests),
        secret(random_u64()),
        mailbox(rings, secret),
        outbox(kMaxWaiting) {}

  struct QueuedMessage {
    OfiMessage message;
    uint64_t finishes = kNoNumber;  // the work request that it completes once delivered
    uint8_t endpoint = 0;
  };

  bool connected() const { return state == State::kConnected; }
  bool leaving() const { return state == State::kLeaving; }
  // Whether no operation of ours is at the provider.
  bool idle() const { return started == 0 && messages == 0; }
  // Something is awaited from the peer or the provider.
  bool awaits() const {
    return !idle() || asked.has_value() || blocked || !outbox.empty() ||
           (work.waiting() != nullptr && !mailbox.has_room());
  }
  bool can_start() const {
    return connected() && !blocked && started + outbox.size() < kMaxStarted &&
           work.waiting() != nullptr;
  }
  // Whether the peer may still write to our memory.
  bool peer_may_write() const {
    return !advertised.empty() && !peer_gone && !peer_dead && state != State::kCreated;
  }

  QueuePairId id;
  QueuePairConfig config;
  State state = State::kCreated;
  CompletionStatus broken_by = CompletionStatus::kOk;
  bool broken_reported = false;
  bool halted = false;  // ignores further writes of the peer
  std::string fault;
  std::string peer;  // its address, as text

  WorkQueue work;
  uint32_t started = 0;   // writes that the provider has
  uint32_t messages = 0;  // messages that the provider has
  bool blocked = false;   // the provider has no room, or no connection yet
  Duration retry_after;   // while it is blocked
  Instant retry_at;
  Instant since;      // the peer's last sign of life, or when we began to wait for one
  Instant last_sign;  // the last sign of life

  OfiAddress remote;
  std::optional<HostLock> lock;                           // of the peer, on the same host
  std::vector<fi_addr_t> peers;                           // by our endpoints
  std::unordered_map<uint32_t, OfiRemoteRegion> regions;  // by the peer's keys
  std::optional<uint32_t> asked;                          // the peer's key that we asked for
  std::unordered_set<uint32_t> advertised;                // our keys that the peer may use
  uint32_t refused = 0;                                   // requests of the peer for unknown keys

  const uint64_t secret;  // of the mailbox, for the peer only
  OfiMailbox mailbox;
  FixedQueue<QueuedMessage> outbox;
  bool gone_sent = false;  // kGone is sent: nothing of ours follows
  bool peer_gone = false;  // the peer has sent kGone
  bool peer_dead = false;  // the provider has given up on the peer
};

struct OfiOperation {
  enum class Kind : uint8_t { kFree, kWrite, kMessage };

  fi_context2 context{};  // the provider's own; must come first
  QueuePairId queue_pair = 0;
  uint64_t number = 0;  // of the work request in its queue pair's WorkQueue
  uint64_t order = 0;   // in which they were posted
  Bytes bytes = 0;
  Instant departure;  // of a write: when its last byte leaves, if nothing delays it
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
  Kind kind = Kind::kFree;
  uint8_t endpoint = 0;
  uint32_t immediate = 0;
  bool answered = true;   // acknowledged by the peer when it is done
  bool finishes = true;   // completes its work request
  bool notifies = false;  // the peer must be notified when it is done
};

// The provider returns an operation's address, so operations never move while the NIC exists.
// Bounded; allocates once.
class OfiOperations {
 public:
  explicit OfiOperations(uint32_t count) : operations_(count) {
    free_.reserve(count);
    free_all();
  }

  // nullptr: all are in use.
  OfiOperation* take(OfiOperation::Kind kind) {
    if (free_.empty()) return nullptr;
    OfiOperation* const operation = free_.back();
    free_.pop_back();
    *operation = OfiOperation{.kind = kind};
    return operation;
  }
  void give_back(OfiOperation& operation) {
    operation.kind = OfiOperation::Kind::kFree;
    free_.push_back(&operation);
  }
  size_t in_use() const { return operations_.size() - free_.size(); }
  // The operation of a context that the provider returned; nullptr: not ours, or not in use.
  OfiOperation* find(void* context) {
    auto* const operation = static_cast<OfiOperation*>(context);
    const bool ours =
        operation >= operations_.data() && operation < operations_.data() + operations_.size();
    return ours && operation->kind != OfiOperation::Kind::kFree ? operation : nullptr;
  }
  // Call it only when no operation is at the provider.
  void free_all() {
    free_.clear();
    for (OfiOperation& operation : operations_) give_back(operation);
  }

  std::vector<OfiOperation>& all() { return operations_; }

 private:
  std::vector<OfiOperation> operations_;
  std::vector<OfiOperation*> free_;
};

// Bounds how long a thread waits for a peer or the provider, turn by turn. Only time counts in
// which the thread was running. A turn is short; for the rest of a long turn the thread was not
// scheduled, which on a loaded host may last for a whole limit. On a host that stalls in every turn
// the wait ends, too, but later.
class Patience {
 public:
  explicit Patience(Duration limit) : limit_(limit) {}

  // Call it once a turn. `waited`: time since the wait began. False: the wait is over.
  bool lasts(Duration waited) {
    counted_ = counted_ + std::min(waited - waited_, kTurnLimit);
    waited_ = waited;
    return counted_ <= limit_ && waited_ <= limit_ * kStalls;
  }

 private:
  static constexpr Duration kTurnLimit = Duration::from_ms(2);  // most that a turn counts
  static constexpr int64_t kStalls = 20;  // the wait lasts at most so many limits

  Duration limit_;
  Duration waited_;
  Duration counted_;
};

}  // namespace pacecar
