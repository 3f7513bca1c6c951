#include "transport/ofi/mailbox.h"

#include <bit>
#include <cstring>
#include <utility>

#include "transport/base/check.h"

namespace pacecar {

// Tells a message that is half written; a peer that wants to deceive can do so without it.
uint64_t OfiMessage::make_check() const {
  std::array<uint64_t, sizeof(OfiMessage) / sizeof(uint64_t)> words;
  OfiMessage plain = *this;
  plain.check = 0;
  std::memcpy(words.data(), &plain, sizeof plain);
  uint64_t sum = 0x9E3779B97F4A7C15;
  for (const uint64_t word : words) sum = (std::rotl(sum, 9) ^ word) * 0xBF58476D1CE4E5B9;
  return sum;
}

OfiMailbox::Outgoing OfiMailbox::send(OfiMessage message) {
  PACECAR_CHECK(has_room_to_tell());
  const uint32_t place = sent_ % OfiRings::kMessages;
  message.to = peer_;
  told_before_ = std::exchange(told_, taken_);
  message.taken = taken_;
  message.sequence = uint64_t{++sent_};
  message.check = message.make_check();
  rings_.out[place] = message;
  return {&rings_.out[place], place};
}

bool OfiMailbox::has_come() const {
  const OfiMessage& place = rings_.in[taken_ % OfiRings::kMessages];
  return __atomic_load_n(&place.sequence, __ATOMIC_ACQUIRE) == uint64_t{taken_ + 1};
}

std::optional<OfiMessage> OfiMailbox::take() {
  if (!has_come()) return std::nullopt;
  const OfiMessage message = rings_.in[taken_ % OfiRings::kMessages];
  if (message.to != own_ || message.check != message.make_check()) return std::nullopt;
  ++taken_;
  if (message.taken - taken_by_peer_ > sent_ - taken_by_peer_) {
    nonsense_ = true;
    return std::nullopt;
  }
  taken_by_peer_ = message.taken;
  return message;
}

}  // namespace pacecar
