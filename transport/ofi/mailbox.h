// OfiMailbox: short messages between the two ends of a queue pair, by which they agree on what the
// provider does not do for them: where memory lies and under which key, that it must not be written
// any more, that a write has arrived, that an end is gone. A message is a remote write into a ring
// in the peer's memory; its sequence number says that it is new, and its check that it is whole and
// comes from the peer: others do not know the secret of the ring.
//
// Pure. Thread rule: one owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "transport/base/units.h"

namespace pacecar {

struct OfiMessage {
  enum class Kind : uint32_t {
    kAsk = 1,  // where is your region `key`?
    kRegion,   // there; or, with length 0, there is no such region that you may write
    kRevoke,   // write into my region `key` no more, and say when nothing is on its way
    kRevoked,  // nothing is
    kNotify,   // a write with immediate has arrived: `key` is the immediate, `length` its bytes
    kTaken,    // nothing but `taken`
    kGone,     // nothing of mine comes any more
  };

  // Only of kRegion: others are written without them.
  uint64_t address = 0;       // of its first byte, as its owner has it
  uint64_t place = 0;         // the same, as the provider wants it
  uint64_t provider_key = 0;  // its own
  Kind kind = Kind::kTaken;
  uint32_t key = 0;
  uint64_t length = 0;    // bytes
  uint64_t taken = 0;     // so many of the receiver's messages have been taken
  uint64_t check = 0;     // over all else and the secret of the ring
  uint64_t sequence = 0;  // 1 is the first; lies last, so that it becomes visible last

  // Bytes before what is written of it.
  size_t unwritten() const { return kind == Kind::kRegion ? 0 : offsetof(OfiMessage, kind); }
  uint64_t make_check(uint64_t secret) const;
};
static_assert(sizeof(OfiMessage) == 64 && std::is_trivially_copyable_v<OfiMessage>);

// The memory of one end: what the peer writes, and the sources of what we write.
struct OfiRings {
  static constexpr uint32_t kMessages = 128;
  std::array<OfiMessage, kMessages> in;
  std::array<OfiMessage, kMessages> out;
};

class OfiMailbox {
 public:
  // `rings` outlives it, and was that of other queue pairs before; `secret` is of its ring, for the
  // peer alone.
  OfiMailbox(OfiRings& rings, uint64_t secret) : rings_(rings), secret_(secret) {
    rings_ = OfiRings();
  }

  // `secret` is of the peer's ring.
  void join(uint64_t secret) { peers_secret_ = secret; }

  // --- sending ---
  // Some places are kept for kTaken and kGone: else two ends with full rings would wait for each
  // other.
  bool has_room() const { return in_peers_ring() < OfiRings::kMessages - kKept; }
  struct Outgoing {
    const OfiMessage* message = nullptr;  // unchanged until the peer has taken it
    uint32_t place = 0;                   // in the peer's ring
  };
  // With room, or for what places are kept for.
  Outgoing send(OfiMessage message);
  // The message could not be handed to the provider: the newest one is as if it had not been.
  void take_back() {
    --sent_;
    notified_ = notified_before_;
  }
  // So much has been taken since it was last said that the peer may wait for it.
  bool must_notify() const { return taken_ - notified_ >= kNotifyAfter; }
  bool has_room_to_notify() const { return in_peers_ring() < OfiRings::kMessages; }

  // --- receiving ---
  // The next message, if it is there. What does not know the secret is not there.
  std::optional<OfiMessage> take();
  // Something has come for take() to look at.
  bool has_come() const;
  // The peer says that it has taken more than there was.
  bool nonsense() const { return nonsense_; }

 private:
  static constexpr uint32_t kKept = 8;
  static constexpr uint32_t kNotifyAfter = 32;

  uint64_t in_peers_ring() const { return sent_ - taken_by_peer_; }

  OfiRings& rings_;
  uint64_t secret_;
  uint64_t peers_secret_ = 0;
  uint64_t sent_ = 0;
  uint64_t taken_by_peer_ = 0;
  uint64_t taken_ = 0;
  uint64_t notified_ = 0;         // of taken_
  uint64_t notified_before_ = 0;  // the newest message was sent
  bool nonsense_ = false;
};

}  // namespace pacecar
