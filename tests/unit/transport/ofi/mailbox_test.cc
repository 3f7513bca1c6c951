#include "transport/ofi/mailbox.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>
#include <vector>

namespace pacecar::mailbox_test {
namespace {

constexpr uint32_t kRoom = 120;  // 8 of the 128 slots are reserved

// Two ends; carry() writes a message of one end into the ring of the other.
struct Ends {
  static constexpr uint64_t kA = 0x10000;  // secrets
  static constexpr uint64_t kB = 0x20001;

  Ends() {
    a.join(kB);
    b.join(kA);
  }
  static void carry(const OfiMailbox::Outgoing& outgoing, OfiRings& to) {
    const size_t skipped = outgoing.message->unwritten();
    std::memcpy(reinterpret_cast<uint8_t*>(&to.in[outgoing.slot]) + skipped,
                reinterpret_cast<const uint8_t*>(outgoing.message) + skipped,
                sizeof(OfiMessage) - skipped);
  }
  void a_sends(uint32_t key) {
    carry(a.send({.kind = OfiMessage::Kind::kNotify, .key = key}), rings_b);
  }
  void b_sends(uint32_t key) {
    carry(b.send({.kind = OfiMessage::Kind::kNotify, .key = key}), rings_a);
  }

  OfiRings rings_a;
  OfiRings rings_b;
  OfiMailbox a{rings_a, kA};
  OfiMailbox b{rings_b, kB};
};

TEST(OfiMailbox, MessagesArriveWholeAndInOrder) {
  Ends ends;
  EXPECT_FALSE(ends.b.take());
  const OfiMessage message{.address = 0x1122334455667788,
                           .provider_address = 9,
                           .provider_key = ~uint64_t{0},
                           .kind = OfiMessage::Kind::kRegion,
                           .key = 7,
                           .length = 11};
  Ends::carry(ends.a.send(message), ends.rings_b);
  ends.a_sends(8);
  const auto first = ends.b.take();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->kind, message.kind);
  EXPECT_EQ(first->key, message.key);
  EXPECT_EQ(first->address, message.address);
  EXPECT_EQ(first->provider_address, message.provider_address);
  EXPECT_EQ(first->provider_key, message.provider_key);
  EXPECT_EQ(first->length, message.length);
  EXPECT_EQ(ends.b.take()->key, 8U);
  EXPECT_FALSE(ends.b.take());
}

TEST(OfiMailbox, SlotsAreReservedForMessagesThatReturnCredit) {
  Ends ends;
  for (uint32_t i = 0; i < kRoom; ++i) {
    ASSERT_TRUE(ends.a.has_room()) << i;
    ends.a_sends(i);
  }
  EXPECT_FALSE(ends.a.has_room());
  for (uint32_t i = kRoom; i < OfiRings::kMessages; ++i) {
    ASSERT_TRUE(ends.a.has_reserved_room()) << i;
    ends.a_sends(i);
  }
  EXPECT_FALSE(ends.a.has_reserved_room());
  for (uint32_t i = 0; i < OfiRings::kMessages; ++i) EXPECT_EQ(ends.b.take()->key, i);
}

TEST(OfiMailbox, TakenMessagesMakeRoomOnceTheirCreditIsReturned) {
  Ends ends;
  while (ends.a.has_room()) ends.a_sends(0);
  EXPECT_FALSE(ends.b.must_return_credit());
  for (uint32_t taken = 1; taken <= kRoom; ++taken) {
    ASSERT_TRUE(ends.b.take());
    EXPECT_EQ(ends.b.must_return_credit(), taken >= 32) << taken;
  }
  EXPECT_FALSE(ends.a.has_room());
  ends.b_sends(1);
  EXPECT_FALSE(ends.b.must_return_credit());
  ASSERT_TRUE(ends.a.take());
  EXPECT_TRUE(ends.a.has_room());
  EXPECT_FALSE(ends.a.broke_protocol());
}

TEST(OfiMailbox, UndoneSendIsRepeatedInTheSameSlotWithItsCredit) {
  Ends ends;
  for (int i = 0; i < 40; ++i) ends.a_sends(0);
  while (ends.b.take()) {
  }
  ASSERT_TRUE(ends.b.must_return_credit());
  const auto lost = ends.b.send({});
  ends.b.undo_send();
  EXPECT_TRUE(ends.b.must_return_credit()) << "the peer has not got the credit";
  const auto again = ends.b.send({.kind = OfiMessage::Kind::kCredit, .key = 3});
  EXPECT_EQ(again.slot, lost.slot);
  EXPECT_FALSE(ends.b.must_return_credit());
  Ends::carry(again, ends.rings_a);
  EXPECT_EQ(ends.a.take()->key, 3U);
  EXPECT_FALSE(ends.a.take());
}

TEST(OfiMailbox, RingsWrapManyTimes) {
  Ends ends;
  for (uint32_t i = 0; i < 100 * OfiRings::kMessages + 5; ++i) {
    ends.a_sends(i);
    ASSERT_EQ(ends.b.take()->key, i);
    ends.b_sends(~i);
    ASSERT_EQ(ends.a.take()->key, ~i);
  }
  EXPECT_TRUE(ends.a.has_room());
  EXPECT_FALSE(ends.a.broke_protocol() || ends.b.broke_protocol());
}

TEST(OfiMailbox, PeerThatTakesMoreThanWasSentBreaksTheProtocol) {
  for (const uint64_t taken : {uint64_t{3}, uint64_t{128}, uint64_t{1} << 63, ~uint64_t{0}}) {
    Ends ends;
    ends.b_sends(0);
    ends.b_sends(0);
    OfiMessage message = *ends.a.send({.kind = OfiMessage::Kind::kNotify}).message;
    message.taken = taken;
    message.check = message.make_check(Ends::kB);
    ends.rings_b.in[0] = message;
    EXPECT_FALSE(ends.b.take()) << taken;
    EXPECT_TRUE(ends.b.broke_protocol()) << taken;
  }
}

TEST(OfiMailbox, PeerThatTakesLessThanBeforeBreaksTheProtocol) {
  Ends ends;
  ends.b_sends(0);
  ASSERT_TRUE(ends.a.take());
  ends.a_sends(0);
  ASSERT_TRUE(ends.b.take());
  OfiMessage message = *ends.a.send({}).message;
  message.taken = 0;
  message.check = message.make_check(Ends::kB);
  ends.rings_b.in[1] = message;
  EXPECT_FALSE(ends.b.take());
  EXPECT_TRUE(ends.b.broke_protocol());
}

TEST(OfiMailbox, MessagesForAnEarlierQueuePairAreIgnored) {
  OfiRings rings_a;
  OfiRings rings_b;
  OfiMailbox a(rings_a, 1);
  OfiMailbox earlier(rings_b, 2);
  a.join(2);
  for (int i = 0; i < 70 && a.has_reserved_room(); ++i) Ends::carry(a.send({}), rings_b);
  OfiMailbox later(rings_b, 66);  // in the same slot
  EXPECT_FALSE(later.take());
  // A message that comes late.
  OfiMailbox again(rings_a, 1);
  again.join(2);
  Ends::carry(again.send({}), rings_b);
  EXPECT_FALSE(later.take());
  // The late message does not block messages of the right peer.
  OfiMailbox peer(rings_a, 3);
  peer.join(66);
  Ends::carry(peer.send({.key = 5}), rings_b);
  EXPECT_EQ(later.take()->key, 5U);
}

TEST(OfiMailbox, MessageWithAWrongSecretIsIgnored) {
  Ends ends;
  for (const uint64_t guess : {uint64_t{0}, Ends::kA, Ends::kB ^ 1, ~Ends::kB}) {
    OfiMessage message{.kind = OfiMessage::Kind::kGone, .sequence = 1};
    message.check = message.make_check(guess);
    ends.rings_b.in[0] = message;
    EXPECT_FALSE(ends.b.take()) << guess;
  }
  ends.a_sends(5);
  EXPECT_EQ(ends.b.take()->key, 5U);
}

// Ring contents while a message is being written over an older one.
class HalfWritten : public testing::Test {
 protected:
  // Both rings have wrapped once, and a message is to be written to `position`.
  void prepare(uint32_t position) {
    ends_ = std::make_unique<Ends>();
    for (uint32_t i = 0; i < OfiRings::kMessages + position; ++i) {
      ends_->a_sends(i);
      ASSERT_TRUE(ends_->b.take());
      ends_->b_sends(i);
      ASSERT_TRUE(ends_->a.take());
    }
    message_ = *ends_->a
                    .send({.address = ~uint64_t{0},
                           .provider_address = ~uint64_t{0},
                           .provider_key = ~uint64_t{0},
                           .kind = OfiMessage::Kind::kRegion,
                           .key = 0xA0A0A0A0,
                           .length = ~uint64_t{0}})
                    .message;
    old_ = ends_->rings_b.in[position];
  }
  // Bytes of the new message where `is_new`, else of the old one.
  template <typename IsNew>
  OfiMessage mixed(IsNew is_new) const {
    OfiMessage mixture = old_;
    for (size_t i = 0; i < sizeof mixture; ++i) {
      if (is_new(i)) {
        std::memcpy(reinterpret_cast<uint8_t*>(&mixture) + i,
                    reinterpret_cast<const uint8_t*>(&message_) + i, 1);
      }
    }
    return mixture;
  }
  void expect_not_there(uint32_t position, const OfiMessage& mixture) {
    if (std::memcmp(&mixture, &message_, sizeof mixture) == 0) return;
    ends_->rings_b.in[position] = mixture;
    EXPECT_FALSE(ends_->b.take());
    EXPECT_FALSE(ends_->b.broke_protocol());
  }

  std::unique_ptr<Ends> ends_;
  OfiMessage message_;
  OfiMessage old_;
};

TEST_F(HalfWritten, MessagesAreTakenOnlyWhenWhole) {
  for (uint32_t position = 0; position < OfiRings::kMessages; ++position) {
    SCOPED_TRACE(position);
    prepare(position);
    for (size_t cut = 0; cut <= sizeof(OfiMessage); ++cut) {
      expect_not_there(position, mixed([cut](size_t i) { return i < cut; }));
      expect_not_there(position, mixed([cut](size_t i) { return i >= cut; }));
    }
    for (uint32_t words = 0; words < 256; ++words) {
      expect_not_there(position, mixed([words](size_t i) { return (words >> i / 8 & 1) != 0; }));
    }
    ends_->rings_b.in[position] = message_;
    const auto taken = ends_->b.take();
    ASSERT_TRUE(taken);
    EXPECT_EQ(taken->key, 0xA0A0A0A0U);
  }
}

}  // namespace
}  // namespace pacecar::mailbox_test
