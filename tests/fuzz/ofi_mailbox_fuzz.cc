// A mailbox whose ring the peer overwrites with any bytes: take() returns only messages with the
// right check, in order.
#include <cstring>
#include <memory>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/ofi/mailbox.h"

// Each message of the input has two bytes before it: the place in the ring, and bits that choose
// which of its fields (sequence, check) are made valid.

namespace pacecar::ofi_mailbox_fuzz {

FUZZ_TARGET(ofi_mailbox) {
  const auto rings = std::make_unique<OfiRings>();
  constexpr uint64_t kSecret = 7;
  OfiMailbox mailbox(*rings, kSecret);
  mailbox.join(8);
  uint64_t taken = 0;
  constexpr size_t kStep = 2 + sizeof(OfiMessage);
  for (size_t at = 0; at + kStep <= size; at += kStep) {
    OfiMessage message;
    std::memcpy(&message, data + at + 2, sizeof message);
    if ((data[at + 1] & 2) != 0) message.sequence = taken + 1;
    // With the right secret, or with a wrong one.
    if ((data[at + 1] & 4) != 0) message.check = message.make_check(data[at + 1] & 1 ? kSecret : 6);
    rings->in[data[at] % OfiRings::kMessages] = message;
    while (const auto next = mailbox.take()) {
      ++taken;
      PACECAR_CHECK(next->sequence == taken);
      PACECAR_CHECK(next->check == next->make_check(kSecret));
    }
    if (mailbox.broke_protocol()) return 0;
    if (mailbox.has_room()) mailbox.send({});
  }
  return 0;
}

}  // namespace pacecar::ofi_mailbox_fuzz
