// RcResponder: responses to reads and atomics, in the order of the requests (InfiniBand
// Architecture Specification vol. 1, 9.7.5.1 and 9.4.4, 9.4.5).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/rc_halves.h"

namespace pacecar::rc_responder_reads_test {
namespace {

using test::kHalfMtu;
using test::ResponderHalf;
using enum roce::Opcode;
using Outcome = RcResponder::Outcome;

uint64_t word_at(const ResponderHalf& half, size_t offset = 0) {
  uint64_t word = 0;
  std::memcpy(&word, half.bytes.data() + offset, sizeof word);
  return word;
}

TEST(RcResponderReads, AReadIsAnsweredInPacketsOfTheMtu) {
  ResponderHalf half;
  half.write(0);
  half.answers();
  EXPECT_EQ(half.take(half.at(kReadRequest, 1, 2 * kHalfMtu + 3, 7)), Outcome::kRead);
  EXPECT_TRUE(half.responder.answer_due());
  const auto answers = half.answers();
  ASSERT_EQ(answers.size(), 3U);
  const std::array opcodes = {kReadFirst, kReadMiddle, kReadLast};
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[i].opcode, opcodes[i]);
    EXPECT_EQ(ResponderHalf::place(answers[i]), 1 + i);
    EXPECT_EQ(answers[i].payload.data(), half.bytes.data() + 7 + i * kHalfMtu);
    EXPECT_EQ(answers[i].payload.size(), i < 2 ? kHalfMtu : 3);
    EXPECT_EQ(answers[i].destination_qp, 0x42U);
    EXPECT_EQ(answers[i].msn, i == 1 ? 0U : 2U) << "the middle has no AETH";
    EXPECT_EQ(answers[i].syndrome, i == 1 ? 0 : roce::kAckUnlimited);
  }
  EXPECT_FALSE(half.responder.answer_due());
}

TEST(RcResponderReads, AReadTakesAsManyNumbersAsItsResponseHasPackets) {
  const std::vector<std::pair<uint32_t, uint32_t>> lengths = {
      {0, 1}, {1, 1}, {kHalfMtu, 1}, {kHalfMtu + 1, 2}, {2 * kHalfMtu, 2}};
  for (const auto& [length, packets] : lengths) {
    ResponderHalf half;
    EXPECT_EQ(half.read(0, length), Outcome::kRead);
    EXPECT_EQ(half.write(packets), Outcome::kPlaced) << length;
    const auto answers = half.answers();
    ASSERT_EQ(answers.size(), packets + 1);
    EXPECT_EQ(answers.back().opcode, kAck);
    EXPECT_EQ(answers.back().msn, 2U);
  }
}

TEST(RcResponderReads, MoreThanAgreedAreDropped) {
  ResponderHalf half;
  const uint32_t most = 2 * ResponderHalf::usual().read_depth;
  for (uint32_t i = 0; i < most; ++i) EXPECT_EQ(half.read(i, 8), Outcome::kRead);
  EXPECT_EQ(half.read(most, 8), Outcome::kOutOfOrder);
  EXPECT_EQ(half.take(half.at(kFetchAdd, most, 0)), Outcome::kOutOfOrder);
  EXPECT_EQ(half.answers().size(), most);
  EXPECT_EQ(half.read(most, 8), Outcome::kRead) << "there is room again";
}

TEST(RcResponderReads, ARepeatedReadIsAnsweredAgain) {
  ResponderHalf half;
  half.read(0, 3 * kHalfMtu);
  half.answers();
  EXPECT_EQ(half.take(half.at(kReadRequest, 1, 2 * kHalfMtu, kHalfMtu)), Outcome::kRead);
  const auto answers = half.answers();
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(ResponderHalf::place(answers[0]), 1U);
  EXPECT_EQ(answers[0].opcode, kReadFirst);
  EXPECT_EQ(half.write(3), Outcome::kPlaced) << "it has taken no number";
}

TEST(RcResponderReads, ARepeatedReadOfNothingIsAnsweredToo) {
  ResponderHalf half;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(half.read(0, 0), Outcome::kRead);
    EXPECT_EQ(half.answers().size(), 1U);
  }
}

TEST(RcResponderReads, OfARepeatedReadNotAByteIsReadWithoutTheRight) {
  ResponderHalf half;
  half.read(0, 1);
  half.answers();
  roce::Packet again = half.at(kReadRequest, 0, 1);
  again.key += 1;
  EXPECT_EQ(half.take(again), Outcome::kDuplicate);
  EXPECT_TRUE(half.answers().empty());
}

TEST(RcResponderReads, ARepeatedReadNeedsTheRightsOfItsConnection) {
  RcResponder::Config config = ResponderHalf::usual();
  config.domain = 2;
  ResponderHalf half(config);
  half.read(0, 8);
  half.answers();
  const auto foreign =
      half.memory.table()
          .add_as(half.bytes.data(), half.bytes.size(), Access::kRemoteAll, 0x4000, 3)
          .value();
  roce::Packet again = half.at(kReadRequest, 0, 8);
  again.address = foreign.remote_address;
  again.key = foreign.key;
  EXPECT_EQ(half.take(again), Outcome::kDuplicate) << "the memory of another domain";
  config.rights.access = Access::kRemoteWrite;
  ResponderHalf closed(config);
  closed.write(0);
  EXPECT_EQ(closed.read(0, 8), Outcome::kDuplicate) << "a connection without reads";
}

TEST(RcResponderReads, NothingNewIsReadUnderAnOldNumber) {
  ResponderHalf half;
  half.read(0, 2 * kHalfMtu);
  half.answers();
  EXPECT_EQ(half.read(1, 2 * kHalfMtu), Outcome::kDuplicate) << "it reached beyond";
  EXPECT_EQ(half.read(1, kHalfMtu), Outcome::kRead);
}

// The peer will request all later ones again, too.
TEST(RcResponderReads, ARepetitionTakesThePlaceOfLaterResponses) {
  ResponderHalf half;
  half.read(0, 8);
  half.read(1, 8);
  half.read(2, 8);
  EXPECT_EQ(half.read(1, 8), Outcome::kRead);
  std::vector<uint32_t> places;
  for (const auto& answer : half.answers()) places.push_back(ResponderHalf::place(answer));
  EXPECT_THAT(places, testing::ElementsAre(0, 1));
}

TEST(RcResponderReads, MemoryThatGoesIsRefusedWhereTheResponseIs) {
  ResponderHalf half;
  half.read(0, 4 * kHalfMtu);
  half.read(4, 8);
  roce::Packet answer;
  ASSERT_TRUE(half.responder.next_answer(half.memory.table(), &answer));
  half.memory.table().remove(half.region.key);
  const auto answers = half.answers();
  ASSERT_EQ(answers.size(), 1U) << "and no later response";
  EXPECT_EQ(answers[0].opcode, kAck);
  EXPECT_EQ(answers[0].syndrome, roce::kNakRemoteAccess);
  EXPECT_EQ(ResponderHalf::place(answers[0]), 1U);
  EXPECT_TRUE(half.responder.refused());
}

TEST(RcResponderReads, OfARepeatedReadMemoryMayBeGone) {
  for (const uint32_t length : {1, 2 * 1024}) {
    ResponderHalf half;
    half.read(0, length);
    half.answers();
    EXPECT_EQ(half.read(0, length), Outcome::kRead);
    half.memory.table().remove(half.region.key);
    EXPECT_TRUE(half.answers().empty());
    EXPECT_FALSE(half.responder.refused());
    EXPECT_EQ(half.read(0, length), Outcome::kDuplicate);
  }
}

TEST(RcResponderReads, NoReadOrAtomicBeginsInTheMiddleOfAMessage) {
  for (const auto opcode : {kReadRequest, kFetchAdd}) {
    ResponderHalf half;
    half.take(half.at(kWriteFirst, 0, 2 * kHalfMtu), kHalfMtu);
    EXPECT_EQ(half.take(half.at(opcode, 1, 8)), Outcome::kRefused);
    const auto answers = half.answers();
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].syndrome, roce::kNakInvalidRequest);
  }
}

// --- atomics ---

TEST(RcResponderReads, AnAtomicIsAnsweredWithTheWordBefore) {
  ResponderHalf half;
  const uint64_t before = word_at(half);
  roce::Packet add = half.at(kFetchAdd, 0, 0);
  add.operand = 3;
  EXPECT_EQ(half.take(add), Outcome::kRead);
  roce::Packet swap = half.at(kCompareSwap, 1, 0);
  swap.compare = before + 3;
  swap.operand = 9;
  EXPECT_EQ(half.take(swap), Outcome::kRead);
  swap.psn = test::RequesterHalf::psn(2);
  EXPECT_EQ(half.take(swap), Outcome::kRead) << "the word is another one by now";
  EXPECT_EQ(word_at(half), 9U);
  const auto answers = half.answers();
  ASSERT_EQ(answers.size(), 3U);
  const std::array originals = {before, before + 3, uint64_t{9}};
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[i].opcode, kAtomicAck);
    EXPECT_EQ(answers[i].original, originals[i]);
    EXPECT_EQ(answers[i].syndrome, roce::kAckUnlimited);
    EXPECT_EQ(answers[i].destination_qp, 0x42U);
    EXPECT_EQ(ResponderHalf::place(answers[i]), i);
    EXPECT_EQ(answers[i].msn, i + 1);
  }
}

TEST(RcResponderReads, ARepeatedAtomicHasTheSameResultAndNoOtherEffect) {
  ResponderHalf half;
  const uint64_t before = word_at(half);
  roce::Packet add = half.at(kFetchAdd, 0, 0);
  add.operand = 1;
  half.take(add);
  roce::Packet second = half.at(kFetchAdd, 1, 0);
  second.operand = 1;
  half.take(second);
  half.answers();
  EXPECT_EQ(half.take(second), Outcome::kRead);
  EXPECT_EQ(half.take(add), Outcome::kRead) << "the response to the later one comes again with it";
  EXPECT_EQ(word_at(half), before + 2);
  auto answers = half.answers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].original, before);
  EXPECT_EQ(ResponderHalf::place(answers[0]), 0U);
}

TEST(RcResponderReads, OnlyTheNewestAtomicsAreRemembered) {
  ResponderHalf half;
  const uint32_t kept = 2 * ResponderHalf::usual().read_depth;
  for (uint32_t i = 0; i < kept + 1; ++i) {
    EXPECT_EQ(half.take(half.at(kFetchAdd, i, 0)), Outcome::kRead);
    half.answers();
  }
  EXPECT_EQ(half.take(half.at(kFetchAdd, 0, 0)), Outcome::kDuplicate);
  EXPECT_TRUE(half.answers().empty());
  EXPECT_EQ(half.take(half.at(kFetchAdd, 1, 0)), Outcome::kRead);
}

TEST(RcResponderReads, AnAtomicThatIsNotAlignedIsInvalid) {
  ResponderHalf half;
  EXPECT_EQ(half.take(half.at(kFetchAdd, 0, 0, 4)), Outcome::kRefused);
  EXPECT_EQ(half.answers().at(0).syndrome, roce::kNakInvalidRequest);
  ResponderHalf other;
  EXPECT_EQ(other.take(other.at(kFetchAdd, 0, 0, other.bytes.size())), Outcome::kRefused);
  EXPECT_EQ(other.answers().at(0).syndrome, roce::kNakRemoteAccess);
}

TEST(RcResponderReads, ARefusalComesBehindTheResponsesBeforeIt) {
  ResponderHalf half;
  half.read(0, 2 * kHalfMtu);
  roce::Packet wrong = half.at(kWriteOnly, 2, 8);
  wrong.key += 1;
  EXPECT_EQ(half.take(wrong, 8), Outcome::kRefused);
  const auto answers = half.answers();
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers[1].opcode, kReadLast);
  EXPECT_EQ(answers[2].syndrome, roce::kNakRemoteAccess);
}

}  // namespace
}  // namespace pacecar::rc_responder_reads_test
