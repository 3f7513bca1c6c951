// OfiMailbox: short messages between the two ends of a queue pair, for tasks that the provider does
// not do: they advertise and revoke memory, notify of a write that has arrived, and report that an
// end is gone. A message is a remote write into a ring in the peer's memory. Its sequence number
// shows that it is new; its check, that it is whole and from the peer, as others do not know the
// secret of the ring. Pure. Thread rule: one owner.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/polled_memory.h"

namespace pacecar {

struct OfiMessage {
  enum class Kind : uint32_t {
    kAsk = 1,  // asks for the peer's region `key`
    kRegion,   // the answer; length 0: there is no such region that the asker may write
    kRevoke,   // write no more to my region `key`, and answer when no write is outstanding
    kRevoked,  // the answer
    kNotify,   // a write with immediate has arrived: `key` is the immediate, `length` its bytes
    kCredit,   // carries only `taken`
    kGone,     // the last message of this end
  };

  // Only of kRegion: other messages are written without these fields.
  uint64_t address = 0;           // of the region's first byte, in its owner's memory
  uint64_t provider_address = 0;  // of the same byte, as the provider's writes name it
  uint64_t provider_key = 0;      // the provider's key of the region
  Kind kind = Kind::kCredit;
  uint32_t key = 0;
  uint64_t length = 0;    // bytes
  uint64_t taken = 0;     // credit: how many of the peer's messages this end has taken so far
  uint64_t check = 0;     // over all other fields and the secret of the ring
  uint64_t sequence = 0;  // from 1 on; the last field, so that it becomes visible last

  // Bytes at its beginning that are not written.
  size_t unwritten() const { return kind == Kind::kRegion ? 0 : offsetof(OfiMessage, kind); }
  // Detects half written and forged messages: simple, as the secret has 64 random bits.
  uint64_t make_check(uint64_t secret) const {
    std::array<uint64_t, sizeof(OfiMessage) / sizeof(uint64_t)> words;
    std::memcpy(words.data(), this, sizeof *this);
    words[offsetof(OfiMessage, check) / sizeof(uint64_t)] = 0;
    uint64_t sum = secret;
    for (size_t i = unwritten() / sizeof(uint64_t); i < words.size(); ++i) {
      sum = (std::rotl(sum, 9) ^ words[i]) * 0xBF58476D1CE4E5B9;
    }
    return sum;
  }
};
static_assert(sizeof(OfiMessage) == 64 && std::is_trivially_copyable_v<OfiMessage>);

// The memory of one end: messages that the peer writes, and the sources of ours.
struct OfiRings {
  static constexpr uint32_t kMessages = 128;
  std::array<OfiMessage, kMessages> in;
  std::array<OfiMessage, kMessages> out;
};

class OfiMailbox {
 public:
  // `rings` must outlive the mailbox, and may have been used by an earlier queue pair. `secret`
  // belongs to our ring; only the peer learns it.
  OfiMailbox(OfiRings& rings, uint64_t secret) : rings_(rings), secret_(secret) {
    rings_ = OfiRings();
  }

  // `secret`: of the peer's ring.
  void join(uint64_t secret) { peers_secret_ = secret; }

  // Some entries are kept for kCredit and kGone: two ends with full rings must not wait for ever.
  bool has_room() const { return in_peers_ring() < OfiRings::kMessages - kReserved; }
  struct Outgoing {
    const OfiMessage* message = nullptr;  // unchanged until the peer has taken it
    uint32_t slot = 0;                    // the index in the peer's ring
  };
  // Requires has_room(); for kCredit and kGone only has_reserved_room().
  Outgoing send(OfiMessage message) {
    PACECAR_CHECK(has_reserved_room());
    const auto slot = static_cast<uint32_t>(sent_ % OfiRings::kMessages);
    credited_before_ = std::exchange(credited_, taken_);
    message.taken = taken_;
    message.sequence = ++sent_;
    message.check = message.make_check(peers_secret_);
    rings_.out[slot] = message;
    return {&rings_.out[slot], slot};
  }
  // The provider did not accept the newest message.
  void undo_send() {
    --sent_;
    credited_ = credited_before_;
  }
  // The peer may be out of credit: kCreditAfter messages were taken since the last report.
  bool must_return_credit() const { return taken_ - credited_ >= kCreditAfter; }
  bool has_reserved_room() const { return in_peers_ring() < OfiRings::kMessages; }

  // The next message, if there is one. A message with a wrong check is not taken.
  std::optional<OfiMessage> take() {
    if (!has_arrived()) return std::nullopt;
    const OfiMessage message = load_polled_record(rings_.in[taken_ % OfiRings::kMessages]);
    if (message.check != message.make_check(secret_)) return std::nullopt;
    ++taken_;
    // Modulo 2^64, so this is also true if the count went back.
    if (message.taken - taken_by_peer_ > sent_ - taken_by_peer_) {
      broke_protocol_ = true;
      return std::nullopt;
    }
    taken_by_peer_ = message.taken;
    return message;
  }
  // Whether something has arrived, which take() will check.
  bool has_arrived() const {
    return load_polled(rings_.in[taken_ % OfiRings::kMessages].sequence) == taken_ + 1;
  }
  // The peer has reported more messages taken than were sent.
  bool broke_protocol() const { return broke_protocol_; }

 private:
  static constexpr uint32_t kReserved = 8;
  static constexpr uint32_t kCreditAfter = 32;

  uint64_t in_peers_ring() const { return sent_ - taken_by_peer_; }

  OfiRings& rings_;
  uint64_t secret_;
  uint64_t peers_secret_ = 0;
  uint64_t sent_ = 0;
  uint64_t taken_by_peer_ = 0;
  uint64_t taken_ = 0;
  uint64_t credited_ = 0;         // the value of taken_ that was sent last
  uint64_t credited_before_ = 0;  // credited_ before the newest send(), for undo_send()
  bool broke_protocol_ = false;
};

}  // namespace pacecar
