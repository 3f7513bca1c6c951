// OfiQueuePair: a queue pair over libfabric, whose endpoints serve all queue pairs. It has the
// peer's regions that we may write, our regions that the peer may write, and the mailbox by which
// the two ends agree on these. Thread rule: one thread at a time.
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/base/random_word.h"
#include "transport/nic/paced/queue_pair_state.h"
#include "transport/ofi/endpoint.h"
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

// The peer's regions that we may write, by its keys.
class OfiRemoteRegions {
 public:
  // nullptr: unknown, or no more writes may follow.
  const OfiRemoteRegion* usable(uint32_t key) const {
    const auto found = regions_.find(key);
    return found != regions_.end() && !found->second.revoked ? &found->second : nullptr;
  }
  bool known(uint32_t key) const { return regions_.contains(key); }
  // The peer's answer; `length` 0 or a range that wraps: there is none.
  bool add(uint32_t key, const OfiRemoteRegion& region) {
    if (region.length == 0 || region.address + region.length < region.address) return false;
    regions_[key] = region;
    return true;
  }
  void on_write_started(uint32_t key) { ++regions_.at(key).writes; }
  // True: it was the last one to a region that the peer has revoked, which waits for our answer.
  bool on_write_done(uint32_t key) {
    const auto found = regions_.find(key);
    if (found == regions_.end() || --found->second.writes > 0) return false;
    return found->second.revoked && regions_.erase(key) > 0;
  }
  // The peer revokes its region. True: no write is outstanding, answer now.
  bool revoke(uint32_t key) {
    const auto found = regions_.find(key);
    if (found != regions_.end() && found->second.writes > 0) {
      found->second.revoked = true;
      return false;
    }
    regions_.erase(key);
    return true;
  }

 private:
  std::unordered_map<uint32_t, OfiRemoteRegion> regions_;
};

struct OfiQueuePair : QueuePairState {
  // Most writes at the provider, and most messages that wait for the mailbox because of writes.
  static constexpr uint32_t kMaxStarted = 128;
  // Messages that wait for the mailbox: notifications of writes, and answers to the peer.
  static constexpr uint32_t kMaxWaiting = kMaxStarted + OfiRings::kMessages;
  // A peer with more refused keys than these is guessing keys: few of the 2^32 are ours.
  static constexpr uint32_t kMaxRefused = 1024;
  static constexpr uint64_t kNoNumber = ~uint64_t{0};

  OfiQueuePair(QueuePairId number, const QueuePairConfig& wanted, OfiRings& rings)
      : QueuePairState(number, wanted),
        secret(random_u64()),
        mailbox(rings, secret),
        outbox(kMaxWaiting) {}

  struct QueuedMessage {
    OfiMessage message;
    uint64_t finishes = kNoNumber;  // the work request that it completes once delivered
    uint8_t endpoint = 0;
  };

  // A message in the mailbox, as the part of a write.
  OfiPart part_of(const OfiMailbox::Outgoing& outgoing) const {
    const size_t skipped = outgoing.message->unwritten();
    const uint64_t place = offsetof(OfiRings, in) + outgoing.slot * sizeof(OfiMessage) + skipped;
    return {.data = reinterpret_cast<const uint8_t*>(outgoing.message) + skipped,
            .length = sizeof(OfiMessage) - skipped,
            .descriptor = rings_descriptor,
            .place = remote.rings + place,
            .key = remote.rings_key};
  }
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

  bool halted = false;    // ignores further writes of the peer
  uint32_t messages = 0;  // messages that the provider has
  bool blocked = false;   // the provider has no room, or no connection yet
  Duration retry_after;   // while it is blocked
  Instant retry_at;
  Instant since;  // the peer's last sign of life, or when we began to wait for one

  OfiAddress remote;
  void* rings_descriptor = nullptr;  // of our rings, at the provider
  std::vector<fi_addr_t> peers;      // by our endpoints
  OfiRemoteRegions regions;
  std::optional<uint32_t> asked;            // the peer's key that we asked for
  std::unordered_set<uint32_t> advertised;  // our keys that the peer may use
  uint32_t refused = 0;                     // requests of the peer for unknown keys

  const uint64_t secret;  // of the mailbox, for the peer only
  OfiMailbox mailbox;
  FixedQueue<QueuedMessage> outbox;
  bool gone_sent = false;  // kGone is sent: nothing of ours follows
  bool peer_gone = false;  // the peer has sent kGone
  bool peer_dead = false;  // the provider has given up on the peer
};

}  // namespace pacecar
