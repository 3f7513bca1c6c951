// RcRequester: what the sending half of standard RC does when nothing comes back, or when its peer
// is not ready.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/rc_halves.h"

namespace pacecar::rc_requester_silence_test {
namespace {

using test::kHalfMtu;
using test::RequesterHalf;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint8_t kNotReady = roce::receiver_not_ready(roce::kUsualRnrDelay);

TEST(RcSilence, CountsFromTheOldestPacketThatIsNotAnswered) {
  const Duration initial = RequesterHalf::usual().loss.initial_timeout;
  RequesterHalf half;
  EXPECT_EQ(half.requester.deadline(), Instant::never());
  half.post(half.write(2 * kHalfMtu));
  half.send();
  const Instant begin = half.now;
  EXPECT_EQ(half.requester.deadline(), begin + initial);
  half.pass(Duration::from_ms(1));
  half.post(half.write(1));
  half.send();
  EXPECT_EQ(half.requester.deadline(), begin + initial) << "what follows puts nothing off";
  half.answer(0);
  EXPECT_EQ(half.requester.deadline(), half.now + initial) << "the peer lives";
  half.answer(2);
  EXPECT_EQ(half.requester.deadline(), Instant::never());
}

TEST(RcSilence, AfterARoundTripItIsShort) {
  RequesterHalf half;
  half.post(half.write(1));
  half.send();
  half.pass(Duration::from_us(100));
  half.answer(0);
  half.post(half.write(1));
  half.send();
  EXPECT_EQ(half.requester.deadline(), half.now + Duration::from_us(300)) << "RFC 6298";
}

TEST(RcSilence, MakesTheOldestPacketGoAgainWhateverTheWindow) {
  RequesterHalf half;
  half.post(half.write(40 * kHalfMtu));
  half.send();
  half.answer(1);
  half.send();
  half.now = half.requester.deadline() - Duration::from_ns(1);
  SendProgress progress;
  EXPECT_EQ(half.requester.on_timeout(half.now, &progress), SendTimeout::kNotYet);
  EXPECT_FALSE(half.requester.probing());
  EXPECT_EQ(half.time_out(&progress), SendTimeout::kRepair);
  EXPECT_TRUE(half.requester.probing());
  EXPECT_TRUE(half.requester.has_work());
  EXPECT_EQ(half.requester.next_bytes(), kHalfMtu);
  EXPECT_FALSE(progress.timed_out) << "one is no sign of congestion yet";
  const auto sent = half.send();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(RequesterHalf::place(sent[0]), 2U);
  EXPECT_TRUE(sent[0].retransmission);
  EXPECT_TRUE(sent[0].packet.ack_request);
  EXPECT_FALSE(half.requester.probing());
  EXPECT_EQ(half.time_out(&progress), SendTimeout::kRepair);
  EXPECT_TRUE(progress.timed_out);
}

TEST(RcSilence, ALastShortPacketGoesAgainAsItWas) {
  RequesterHalf half;
  half.post(half.write(kHalfMtu + 10));
  half.send();
  half.answer(0);
  half.time_out();
  EXPECT_EQ(half.requester.next_bytes(), 10U);
  EXPECT_FALSE(half.requester.next_reads());
  const auto sent = half.send();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].packet.payload.size(), 10U);
}

TEST(RcSilence, TheAnswerShowsWhatElseIsMissing) {
  RequesterHalf half;
  half.post(half.write(4 * kHalfMtu));
  half.send();
  half.time_out();
  half.send();
  const SendProgress told = half.answer(0);
  EXPECT_EQ(told.acked, kHalfMtu);
  EXPECT_EQ(told.lost, kHalfMtu);
  EXPECT_THAT(half.send_places(), ElementsAre(1, 2, 3));
  EXPECT_EQ(half.answer(1).lost, 0U) << "the others are on their way again";
  EXPECT_THAT(half.send_places(), IsEmpty());
}

TEST(RcSilence, ANakAfterItIsNotFollowedByAnotherRepetition) {
  RequesterHalf half;
  half.post(half.write(4 * kHalfMtu));
  half.send();
  half.time_out();
  half.send();
  half.answer(1, roce::kNakSequence);
  EXPECT_THAT(half.send_places(), ElementsAre(1, 2, 3));
  EXPECT_EQ(half.answer(1).lost, 0U);
  EXPECT_THAT(half.send_places(), IsEmpty());
}

TEST(RcSilence, WhatIsSentAfterTheProbeIsNotMissing) {
  RequesterHalf half;
  half.post(half.write(kHalfMtu));
  half.send();
  half.time_out();
  half.send();
  half.post(half.write(2 * kHalfMtu));
  half.send();
  EXPECT_EQ(half.answer(0).lost, 0U);
  EXPECT_THAT(half.send_places(), IsEmpty());
}

TEST(RcSilence, TheWaitDoublesUpToItsLimit) {
  RequesterHalf half;
  half.post(half.write(1));
  half.send();
  std::vector<int64_t> waits;
  for (int i = 0; i < 5; ++i) {
    half.time_out();
    waits.push_back((half.requester.deadline() - half.now).ns() / 1'000'000);
    half.send();
  }
  EXPECT_THAT(waits, ElementsAre(8, 16, 20, 20, 20));
  half.post(half.write(1));
  half.answer(0);
  half.send();
  half.time_out();
  EXPECT_LE(half.requester.deadline() - half.now, Duration::from_ms(8)) << "it has answered";
}

// Silent for the limit, and asked in vain often enough: both.
TEST(RcSilence, APeerIsDeadAfterItsLimitAndSixQuestions) {
  struct Case {
    int64_t limit_ms;
    int questions;
  };
  // After 8, 16, 32, 52, 72, 92, 112, 132 ms.
  for (const auto& [limit_ms, questions] : {Case{60, 6}, Case{112, 6}, Case{113, 7}}) {
    SCOPED_TRACE(limit_ms);
    RcRequester::Config config = RequesterHalf::usual();
    config.sending.silence_limit = Duration::from_ms(limit_ms);
    RequesterHalf half(config);
    half.post(half.write(1));
    half.send();
    for (int i = 0; i < questions; ++i) {
      ASSERT_EQ(half.time_out(), SendTimeout::kRepair) << i;
      ASSERT_EQ(half.send().size(), 1U);
    }
    EXPECT_EQ(half.time_out(), SendTimeout::kPeerDead);
    EXPECT_EQ(half.requester.failure(), CompletionStatus::kRetryExceeded);
    EXPECT_FALSE(half.requester.has_work());
  }
}

TEST(RcSilence, OurOwnStopIsNotThePeers) {
  RcRequester::Config config = RequesterHalf::usual();
  config.sending.silence_limit = Duration::from_ms(200);
  RequesterHalf half(config);
  half.post(half.write(1));
  half.send();
  for (int i = 0; i < 6; ++i) {
    half.time_out();
    half.send();
  }
  half.now = half.requester.deadline() + Duration::from_s(1);  // this host did not run
  SendProgress progress;
  EXPECT_EQ(half.requester.on_timeout(half.now, &progress), SendTimeout::kRepair);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(half.time_out(), SendTimeout::kRepair);
  EXPECT_EQ(half.time_out(), SendTimeout::kPeerDead);
}

TEST(RcSilence, AnAnswerBeginsItAnew) {
  RcRequester::Config config = RequesterHalf::usual();
  config.sending.silence_limit = Duration::from_ms(60);
  RequesterHalf half(config);
  half.post(half.write(2 * kHalfMtu));
  half.send();
  for (int i = 0; i < 6; ++i) half.time_out();
  half.answer(0);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(half.time_out(), SendTimeout::kRepair) << i;
  EXPECT_EQ(half.time_out(), SendTimeout::kPeerDead);
}

TEST(RcSilence, TimeInWhichNothingWasSentIsNone) {
  RequesterHalf half;
  half.pass(Duration::from_s(100));
  half.post(half.write(1));
  half.send();
  for (int i = 0; i < 9; ++i) ASSERT_EQ(half.time_out(), SendTimeout::kRepair) << i;
}

// --- a peer that is not ready ---

TEST(RcNotReady, IsLeftAloneAndThenGetsEverythingFromThere) {
  RequesterHalf half;
  half.post(half.write(4 * kHalfMtu));
  half.send();
  const SendProgress told = half.answer(1, kNotReady);
  EXPECT_EQ(told.acked, kHalfMtu);
  EXPECT_EQ(told.lost, 0U) << "nothing was";
  EXPECT_FALSE(half.requester.has_work());
  EXPECT_EQ(half.requester.deadline(), half.now + Duration::from_us(320)) << "table 45";
  SendProgress progress;
  EXPECT_EQ(half.time_out(&progress), SendTimeout::kRepair);
  EXPECT_FALSE(progress.timed_out);
  EXPECT_FALSE(half.requester.probing());
  EXPECT_EQ(half.requester.deadline(), half.now + RequesterHalf::usual().loss.initial_timeout);
  EXPECT_THAT(half.send_places(), ElementsAre(1, 2, 3));
}

TEST(RcNotReady, AProbeIsNoLongerNeeded) {
  RequesterHalf half;
  half.post(half.write(2 * kHalfMtu));
  half.send();
  half.time_out();
  half.answer(0, kNotReady);
  half.time_out();
  EXPECT_FALSE(half.requester.probing());
  EXPECT_THAT(half.send_places(), ElementsAre(0, 1));
}

TEST(RcNotReady, ItsLimitIsItsOwn) {
  RcRequester::Config config = RequesterHalf::usual();
  config.sending.not_ready_limit = Duration::from_us(3 * 320);
  RequesterHalf half(config);
  half.post(half.write(1, 6));
  half.send();
  for (int i = 0; i < 2; ++i) {
    half.answer(0, kNotReady);
    EXPECT_EQ(half.time_out(), SendTimeout::kRepair);
    half.send();
  }
  half.answer(0, kNotReady);
  EXPECT_EQ(half.time_out(), SendTimeout::kPeerDead);
  EXPECT_EQ(half.requester.failure(), CompletionStatus::kReceiverNotReady);
}

TEST(RcNotReady, APeerThatWasReadySinceIsDeadOnlyWhenItIsSilent) {
  RcRequester::Config config = RequesterHalf::usual();
  config.sending.not_ready_limit = Duration::from_ms(2);
  RequesterHalf half(config);
  half.post(half.write(1));
  half.post(half.write(1));
  half.send();
  half.answer(0, kNotReady);
  half.time_out();
  half.send();
  half.answer(0);
  EXPECT_EQ(half.time_out(), SendTimeout::kRepair) << "later than its limit for being ready";
  EXPECT_EQ(half.time_out(), SendTimeout::kRepair);
  EXPECT_EQ(half.requester.failure(), CompletionStatus::kOk);
}

// The peer may ask for a long wait: retries are counted, and the limit is the least time.
TEST(RcNotReady, IsTriedAgainAsOftenAsTheProgramWants) {
  RcRequester::Config config = RequesterHalf::usual();
  config.sending.not_ready_limit = Duration::from_us(2 * 320);
  config.sending.not_ready_retries = 3;
  RequesterHalf half(config);
  half.post(half.write(1));
  half.send();
  for (int i = 0; i < 3; ++i) {
    half.answer(0, kNotReady);
    half.answer(0, kNotReady);  // once more, by the network
    EXPECT_EQ(half.time_out(), SendTimeout::kRepair) << i;
    ASSERT_EQ(half.send().size(), 1U);
  }
  half.answer(0, kNotReady);
  EXPECT_EQ(half.time_out(), SendTimeout::kPeerDead);
  EXPECT_EQ(half.requester.failure(), CompletionStatus::kReceiverNotReady);
}

TEST(RcNotReady, IsTriedForeverButNotIfItIsSilent) {
  RcRequester::Config config = RequesterHalf::usual();
  config.sending.silence_limit = Duration::from_ms(60);
  config.sending.not_ready_limit = Duration::max();
  RequesterHalf half(config);
  half.post(half.write(1));
  half.send();
  for (int i = 0; i < 1000; ++i) {
    half.answer(0, kNotReady);
    ASSERT_EQ(half.time_out(), SendTimeout::kRepair);
    half.send();
  }
  for (int i = 0; i < 6; ++i) EXPECT_EQ(half.time_out(), SendTimeout::kRepair) << i;
  EXPECT_EQ(half.time_out(), SendTimeout::kPeerDead);
  EXPECT_EQ(half.requester.failure(), CompletionStatus::kRetryExceeded);
}

TEST(RcNotReady, AnAcknowledgementEndsTheWait) {
  RequesterHalf half;
  half.post(half.write(4 * kHalfMtu));
  half.send();
  half.answer(1, kNotReady);
  half.answer(1);  // it had a receive request after all, and the answers have crossed
  EXPECT_THAT(half.send_places(), ElementsAre(2, 3));
}

}  // namespace
}  // namespace pacecar::rc_requester_silence_test
