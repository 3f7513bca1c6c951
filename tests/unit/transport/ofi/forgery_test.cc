// A peer of a libfabric NIC cannot forge another peer's messages: it can write only to its own
// ring, completion data is ignored, and a message counts only if its check uses the secret of the
// ring.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/ofi_stranger.h"
#include "tests/support/over_ofi.h"
#include "transport/base/prng.h"

namespace pacecar::forgery_test {
namespace {

using test::OfiConnection;
using test::OfiEnd;
using test::OfiStranger;
using test::run_until;
using testing::HasSubstr;
using Kind = OfiMessage::Kind;

// Both the stranger and the victim have a queue pair with `end_`.
class OfiForgeryTest : public test::OverOfi {
 protected:
  void SetUp() override {
    test::OverOfi::SetUp();
    if (IsSkipped()) return;
    stranger_ = std::make_unique<OfiStranger>(kind());
    end_ = std::make_unique<OfiEnd>(kind());
    victim_ = std::make_unique<OfiEnd>(kind());
    own_ = stranger_->meet(*end_);
    ends_ = connect(*end_, *victim_);
    at_victim_ = test::need(decode_ofi_address(end_->nic().queue_pair_address(ends_.a).view()));
  }

  bool attempt(const OfiMessage& message, uint64_t place, uint64_t key,
               std::optional<uint64_t> data = {}) {
    return stranger_->attempt({end_.get(), victim_.get()}, message, place, key, data);
  }
  // A message as the victim's first one would be, but with the stranger's secret.
  OfiMessage forged(Kind kind) const {
    OfiMessage message{.kind = kind, .sequence = 1};
    message.check = message.make_check(stranger_->remote().secret);
    return message;
  }
  // The victim's write arrives, and it is the only one that `end_` reports for its queue pair.
  void expect_victim_works() {
    const auto& source = victim_->memory(kSize, Access::kLocalRead, 7);
    const auto& sink = end_->memory(kSize, Access::kRemoteWrite);
    ASSERT_TRUE(victim_->post(ends_.b, OfiEnd::write(5, source, sink.target())));
    run_until({end_.get(), victim_.get()}, [&] {
      stranger_->step();
      return end_->received(ends_.a) > 0 || end_->broken(ends_.a) || victim_->broken(ends_.b);
    });
    EXPECT_EQ(end_->broken(ends_.a), nullptr) << end_->nic().fault(ends_.a);
    EXPECT_EQ(victim_->broken(ends_.b), nullptr) << victim_->nic().fault(ends_.b);
    EXPECT_EQ(end_->received(ends_.a), 1U);
    EXPECT_EQ(sink.bytes, source.bytes);
  }

  std::unique_ptr<OfiStranger> stranger_;  // outlives the NIC, which writes to it to the end
  std::unique_ptr<OfiEnd> end_;
  std::unique_ptr<OfiEnd> victim_;
  QueuePairId own_ = 0;
  OfiConnection ends_;
  OfiAddress at_victim_;  // known to the victim only
};

INSTANTIATE_TEST_SUITE_P(Over, OfiForgeryTest, test::every_ofi_kind(), test::ofi_kind_name);

TEST_P(OfiForgeryTest, KeyOfOneRingDoesNotOpenAnother) {
  const OfiAddress& own = stranger_->remote();
  EXPECT_NE(own.rings_key, at_victim_.rings_key);
  EXPECT_NE(own.secret, at_victim_.secret);
  const int64_t distance = int64_t{ends_.a % 16} - int64_t{own_ % 16};
  EXPECT_FALSE(
      attempt(forged(Kind::kGone), own.rings + distance * sizeof(OfiRings), own.rings_key));
  expect_victim_works();
}

TEST_P(OfiForgeryTest, KeyOfAFormerPeerOpensNothing) {
  const OfiAddress own = stranger_->remote();
  stranger_->send(*end_, {.kind = Kind::kGone});
  end_->nic().destroy_queue_pair(own_);
  QueuePairId next = 0;
  ASSERT_TRUE(run_until({end_.get()}, [&] {  // until the slot of the former peer is used again
    stranger_->step();
    next = test::need(end_->nic().create_queue_pair({}));
    if (next % 16 == own_ % 16) return true;
    end_->nic().destroy_queue_pair(next);
    return false;
  }));
  const auto later = test::need(decode_ofi_address(end_->nic().queue_pair_address(next).view()));
  EXPECT_NE(later.rings_key, own.rings_key);
  EXPECT_NE(later.secret, own.secret);
  EXPECT_FALSE(attempt({}, own.rings, own.rings_key));
  expect_victim_works();
}

TEST_P(OfiForgeryTest, CompletionDataIsIgnored) {
  const OfiAddress& own = stranger_->remote();
  const uint64_t before = end_->nic().counters().unknown_queue_pair;
  attempt({}, own.rings + 7 * sizeof(OfiMessage), own.rings_key,
          uint64_t{ends_.a % 16} << 51 | uint64_t{7} << 32 | 4711);
  ASSERT_TRUE(run_until({end_.get()}, [&] {
    stranger_->step();
    return end_->nic().counters().unknown_queue_pair > before || end_->received(ends_.a) > 0;
  }));
  expect_victim_works();
}

// Some providers choose keys that can be guessed.
TEST_P(OfiForgeryTest, MessageWithAGuessedKeyIsIgnored) {
  EXPECT_TRUE(attempt(forged(Kind::kGone), at_victim_.rings, at_victim_.rings_key));
  expect_victim_works();
}

TEST_P(OfiForgeryTest, PeerThatGuessesKeysOfMemoryIsDisconnected) {
  Prng prng(20);
  for (int i = 0; i < 5000 && end_->broken(own_) == nullptr; ++i) {
    run_until({end_.get()}, [this] {
      stranger_->step();
      return stranger_->mailbox().has_room() || end_->broken(own_) != nullptr;
    });
    if (end_->broken(own_) != nullptr) break;
    stranger_->send(*end_, {.kind = Kind::kAsk, .key = static_cast<uint32_t>(prng.next_u64())});
    stranger_->received.clear();
  }
  ASSERT_NE(end_->broken(own_), nullptr);
  EXPECT_THAT(end_->nic().fault(own_), HasSubstr("asks for memory that was not advertised to it"));
  expect_victim_works();
}

}  // namespace
}  // namespace pacecar::forgery_test
