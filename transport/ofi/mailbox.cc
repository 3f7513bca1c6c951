#include "transport/ofi/mailbox.h"

#include <bit>
#include <cstring>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/polled_memory.h"

namespace pacecar {

// Detects messages that are half written or forged. As the secret has 64 random bits, a simple
// check is enough.
uint64_t OfiMessage::make_check(uint64_t secret) const {
  std::array<uint64_t, sizeof(OfiMessage) / sizeof(uint64_t)> words;
  std::memcpy(words.data(), this, sizeof *this);
  words[offsetof(OfiMessage, check) / sizeof(uint64_t)] = 0;
  uint64_t sum = secret;
  for (size_t i = unwritten() / sizeof(uint64_t); i < words.size(); ++i) {
    sum = (std::rotl(sum, 9) ^ words[i]) * 0xBF58476D1CE4E5B9;
  }
  return sum;
}

OfiMailbox::Outgoing OfiMailbox::send(OfiMessage message) {
  PACECAR_CHECK(has_reserved_room());
  const auto slot = static_cast<uint32_t>(sent_ % OfiRings::kMessages);
  credited_before_ = std::exchange(credited_, taken_);
  message.taken = taken_;
  message.sequence = ++sent_;
  message.check = message.make_check(peers_secret_);
  rings_.out[slot] = message;
  return {&rings_.out[slot], slot};
}

bool OfiMailbox::has_arrived() const {
  return load_polled(rings_.in[taken_ % OfiRings::kMessages].sequence) == taken_ + 1;
}

std::optional<OfiMessage> OfiMailbox::take() {
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

}  // namespace pacecar
