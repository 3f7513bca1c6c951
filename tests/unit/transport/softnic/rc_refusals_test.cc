// Standard RC: what the sender does when it is refused, and when nothing comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/rc_pair.h"

namespace pacecar::rc_refusals_test {
namespace {

using test::Datagram;
using test::forge;
using test::parse;
using test::SoftNicPair;

constexpr Bytes kMtu = 1024;

class RcRefusalTest : public testing::Test {
 protected:
  RcRefusalTest() {
    pair_.post(0, ends_[0], SoftNicPair::write(from_, to_, 4 * kMtu, 1));
    sent_ = pair_.transmit(0);
  }
  uint32_t psn(uint32_t ahead) const { return (parse(sent_[0]).psn + ahead) & 0xFFFFFF; }
  // As if side 1 answered so to the packet `ahead` of the first.
  void answer(uint32_t ahead, uint8_t syndrome) {
    pair_.deliver(0, forge(1, {.opcode = roce::Opcode::kAck,
                               .syndrome = syndrome,
                               .destination_qp = ends_[0],
                               .psn = psn(ahead)}));
  }
  std::vector<uint32_t> sent_again(Duration time) {
    std::vector<uint32_t> again;
    for (const Datagram& packet : pair_.transmit_for(0, time)) again.push_back(parse(packet).psn);
    return again;
  }
  FlowSignal signal() {
    FlowSignal signal;
    EXPECT_EQ(pair_.nic(0).poll_signals({&signal, 1}), 1U);
    return signal;
  }

  SoftNicPair pair_{test::rc_config()};
  SoftNicPair::Ends ends_ = pair_.connect({.receives = 0});
  test::TestMemory& from_ = pair_.memory(0, 4 * kMtu);
  test::TestMemory& to_ = pair_.memory(1, 4 * kMtu);
  std::vector<Datagram> sent_;
};

TEST_F(RcRefusalTest, AReceiverThatIsNotReadyIsLeftAloneForAsLongAsItSays) {
  ASSERT_EQ(sent_.size(), 4U);
  answer(1, roce::receiver_not_ready(roce::kUsualRnrDelay));
  EXPECT_TRUE(sent_again(Duration::from_us(319)).empty());
  EXPECT_THAT(sent_again(Duration::from_us(2)), testing::ElementsAre(psn(1), psn(2), psn(3)));
  const FlowSignal told = signal();
  EXPECT_EQ(told.acked, kMtu);
  EXPECT_EQ(told.lost, 0U) << "nothing was";
  EXPECT_FALSE(told.timed_out);
}

TEST_F(RcRefusalTest, AGapMakesEverythingBehindItGoAtOnce) {
  answer(2, roce::kNakSequence);
  EXPECT_THAT(sent_again(Duration::from_us(1)), testing::ElementsAre(psn(2), psn(3)));
  const FlowSignal told = signal();
  EXPECT_EQ(told.acked, 2 * kMtu);
  EXPECT_EQ(told.lost, kMtu);
  answer(1, roce::kNakSequence);
  EXPECT_TRUE(sent_again(Duration::from_us(1)).empty()) << "that has been acknowledged";
}

TEST_F(RcRefusalTest, WordOfWhatWasNotSentIsIgnored) {
  answer(4, roce::kAckUnlimited);
  answer(4, roce::kNakSequence);
  EXPECT_TRUE(sent_again(Duration::from_us(1)).empty());
  answer(3, roce::kAckUnlimited);
  pair_.collect();
  ASSERT_EQ(pair_.completions[0].size(), 1U);
  EXPECT_EQ(pair_.completions[0][0].status, CompletionStatus::kOk);
}

TEST_F(RcRefusalTest, SilenceMakesTheOldestGoAgainAndItsAnswerTheRest) {
  answer(0, roce::kAckUnlimited);
  const auto again = sent_again(Duration::from_ms(100));
  ASSERT_FALSE(again.empty());
  EXPECT_THAT(again, testing::Each(psn(1))) << "nothing but the oldest";
  answer(1, roce::kAckUnlimited);
  EXPECT_THAT(sent_again(Duration::from_us(1)), testing::ElementsAre(psn(2), psn(3)))
      << "what was sent before the silence is lost";
  answer(3, roce::kAckUnlimited);
  pair_.collect();
  ASSERT_EQ(pair_.completions[0].size(), 1U);
  EXPECT_EQ(pair_.completions[0][0].status, CompletionStatus::kOk);
  EXPECT_TRUE(sent_again(Duration::from_ms(100)).empty()) << "all is done";
}

TEST_F(RcRefusalTest, ALongSilenceIsSignalled) {
  ASSERT_GT(sent_again(Duration::from_ms(100)).size(), 1U);
  EXPECT_TRUE(signal().timed_out);
}

TEST_F(RcRefusalTest, WhatBrokeAQueuePairIsToldAsText) {
  EXPECT_EQ(pair_.nic(0).fault(ends_[0]), "") << "nothing has";
  EXPECT_EQ(pair_.nic(0).fault(ends_[0] + 1), "") << "there is none";
  pair_.lose = [](size_t, Datagram&) { return true; };
  ASSERT_TRUE(pair_.run_until_completed(0, 1));
  EXPECT_EQ(pair_.completions[0].back().status, CompletionStatus::kRetryExceeded);
  EXPECT_THAT(pair_.nic(0).fault(ends_[0]), testing::HasSubstr("192.0.2.2"));
  EXPECT_THAT(pair_.nic(0).fault(ends_[0]), testing::HasSubstr("has not answered"));
}

TEST_F(RcRefusalTest, AReceiverThatIsNeverReadyIsNamed) {
  pair_.lose = [this](size_t from, Datagram& datagram) {
    if (from == 0) answer((parse(datagram).psn - psn(0)) & 0xFFFFFF, roce::receiver_not_ready(10));
    return true;
  };
  ASSERT_TRUE(pair_.run([this] {
    pair_.collect();
    return !pair_.completions[0].empty();
  }));
  EXPECT_THAT(pair_.nic(0).fault(ends_[0]), testing::HasSubstr("no receive request"));
}

TEST_F(RcRefusalTest, AnAnswerAfterSilenceToAllOfItRepeatsNothing) {
  ASSERT_FALSE(sent_again(Duration::from_ms(100)).empty());
  answer(3, roce::kAckUnlimited);
  EXPECT_TRUE(sent_again(Duration::from_ms(100)).empty());
}

}  // namespace
}  // namespace pacecar::rc_refusals_test
