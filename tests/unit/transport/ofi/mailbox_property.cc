// OfiMailbox under any timing: messages become visible late, and the provider refuses some at
// first.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <deque>

#include "transport/base/prng.h"
#include "transport/ofi/mailbox.h"

namespace pacecar::mailbox_property {
namespace {

// One end, driven as by a NIC.
struct End {
  explicit End(uint64_t secret) : mailbox(rings, secret) {}

  // `accepted`: the provider has room. Returns it.
  bool send(OfiMessage message, bool accepted) {
    const OfiMailbox::Outgoing outgoing = mailbox.send(message);
    if (accepted) {
      on_wire.push_back({*outgoing.message, outgoing.slot});
    } else {
      mailbox.undo_send();
    }
    return accepted;
  }

  struct Flying {
    OfiMessage message;
    uint32_t slot;
  };

  OfiRings rings;
  OfiMailbox mailbox;
  std::deque<Flying> on_wire;
  uint32_t sent = 0;
  uint32_t taken = 0;
};

RC_GTEST_PROP(OfiMailbox, EachMessageIsTakenOnceAndInOrder, (uint64_t seed)) {
  constexpr uint32_t kTotal = 400;
  Prng prng(seed);
  std::array<End, 2> ends{End(1), End(2)};
  ends[0].mailbox.join(2);
  ends[1].mailbox.join(1);
  const uint64_t refusals = prng.below(4);  // in four sends
  // If only one side sends messages, the other returns credit only.
  const std::array<uint32_t, 2> totals{kTotal, prng.below(2) == 0 ? 0 : kTotal};
  for (int turn = 0; turn < 40'000; ++turn) {
    const size_t side = prng.below(2);
    End& end = ends[side];
    End& other = ends[1 - side];
    const bool accepted = prng.below(4) >= refusals;
    switch (prng.below(3)) {
      case 0:
        if (end.sent < totals[side] && end.mailbox.has_room()) {
          end.sent += end.send({.kind = OfiMessage::Kind::kNotify, .key = end.sent}, accepted);
        }
        if (end.mailbox.must_return_credit() && end.mailbox.has_reserved_room())
          end.send({}, accepted);
        break;
      case 1:
        if (end.on_wire.empty()) break;
        other.rings.in[end.on_wire.front().slot] = end.on_wire.front().message;
        end.on_wire.pop_front();
        break;
      default:
        while (const auto message = end.mailbox.take()) {
          if (message->kind != OfiMessage::Kind::kNotify) continue;
          RC_ASSERT(message->key == end.taken);
          ++end.taken;
        }
        RC_ASSERT(!end.mailbox.broke_protocol());
    }
    if (ends[1].taken == totals[0] && ends[0].taken == totals[1]) return;
  }
  RC_FAIL("deadlock: not all messages were taken");
}

}  // namespace
}  // namespace pacecar::mailbox_property
