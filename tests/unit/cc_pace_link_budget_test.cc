// What one process learns of its link (LinkBudget), alone: from arrivals and delays that the test
// makes up, and on a model of a link with a queue.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "cc/pace/link_budget.h"

namespace pacecar {
namespace {

constexpr double kTold = 1e9;
constexpr Bytes kPacket = 4200;
constexpr Duration kRoundTrip = Duration::from_us(100);
constexpr Duration kBaseMemory = Duration::from_ms(400);
// The law's window here: 16 packets at the told rate.
constexpr Duration kWindow = Duration::from_us(540);
// Beyond every delay that is usual, and not so far that a greedy neighbor is suspected.
constexpr Duration kQueue = Duration::from_us(500);

LinkBudgetConfig config(double first = 0) {
  return {.line = Rate::from_bps(static_cast<uint64_t>(kTold)),
          .first = Rate::from_bps(static_cast<uint64_t>(first)),
          .packet = kPacket,
          .round_trip = kRoundTrip,
          .jitter = Duration::from_us(10),
          .base_memory = kBaseMemory};
}

// --- what arrives is made up ---

class CcPaceLinkBudget : public ::testing::Test {
 protected:
  // Packets at `share` of the told rate, all of them so late.
  void arrive(double share, Duration late, Duration span) {
    const auto gap = static_cast<int64_t>(kPacket * 8e9 / (kTold * share));
    for (const Instant end = now_ + span; now_ < end; now_ = now_ + Duration::from_ns(gap)) {
      budget_.on_bytes(now_, kPacket, late);
    }
  }
  // A queue stands for as long as it takes to learn of it.
  void learn(double share) {
    for (int i = 0; i < 20 && !budget_.learnt(); ++i) arrive(share, kQueue, kWindow);
    ASSERT_TRUE(budget_.learnt());
  }
  double share() const { return budget_.rate() / kTold; }

  LinkBudget budget_{config()};
  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcPaceLinkBudget, IdleWhileArrivalsFillWhatWasTold) {
  EXPECT_EQ(budget_.rate(), kTold);
  arrive(1, kQueue, Duration::from_ms(100));
  EXPECT_EQ(budget_.rate(), kTold) << "the queue is of our own making";
  EXPECT_FALSE(budget_.learnt());
  arrive(0.1, Duration(), Duration::from_ms(100));
  EXPECT_EQ(budget_.rate(), kTold) << "who uses little without a queue learns nothing";
}

TEST_F(CcPaceLinkBudget, DoubtsWhatWasToldWhenAQueueHasStoodForSomeWindows) {
  arrive(0.5, Duration(), kWindow * 10);
  arrive(0.5, kQueue, kWindow * 2);
  EXPECT_EQ(budget_.rate(), kTold);
  arrive(0.5, kQueue, kWindow * 10);
  EXPECT_TRUE(budget_.learnt());
  EXPECT_LT(share(), 0.52);
}

TEST_F(CcPaceLinkBudget, QueuesThatComeAndGoAreNoReason) {
  for (int i = 0; i < 50; ++i) {
    arrive(0.5, Duration(), kWindow * 2);
    arrive(0.5, kQueue, kWindow * 2);
  }
  EXPECT_EQ(budget_.rate(), kTold);
}

TEST_F(CcPaceLinkBudget, WhatArrivesWhileAQueueStandsIsAllThereIs) {
  for (const double given : {0.7, 0.4, 0.1}) {
    arrive(given, kQueue, Duration::from_ms(20));
    EXPECT_LE(share(), given * 1.02);
  }
}

// What drains the queue is for a while; what lasts is what the link gave.
TEST_F(CcPaceLinkBudget, ACutThatDrainsAQueueIsOverWithIt) {
  learn(0.5);
  EXPECT_LT(share(), 0.43) << "the queue is drained";
  arrive(share(), Duration(), (kWindow + kQueue) * 3);
  EXPECT_GT(share(), 0.45);
  EXPECT_LE(share(), 0.5);
}

TEST_F(CcPaceLinkBudget, BurstsThatUseAllOfItLetItGrow) {
  LinkBudget budget(config(0.1 * kTold));
  // A window's worth at all that is allowed, then nothing for as long.
  for (int burst = 0; burst < 200; ++burst) {
    const auto gap = Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / budget.rate()));
    for (const Instant end = now_ + kWindow; now_ < end; now_ = now_ + gap) {
      budget.on_bytes(now_, kPacket, Duration());
    }
    now_ = now_ + kWindow;
  }
  EXPECT_EQ(budget.rate(), kTold);
}

TEST_F(CcPaceLinkBudget, WhatIsNotUsedDoesNotGrow) {
  LinkBudget budget(config(0.1 * kTold));
  for (int i = 0; i < 10'000; ++i) {
    now_ = now_ + Duration::from_us(840);  // 0.04 of the told rate
    budget.on_bytes(now_, kPacket, Duration());
  }
  EXPECT_EQ(budget.rate(), 0.1 * kTold);
}

TEST_F(CcPaceLinkBudget, APartIsACapThatForgetsNothing) {
  budget_.set_part(0.3 * kTold);
  EXPECT_EQ(budget_.rate(), 0.3 * kTold);
  EXPECT_FALSE(budget_.learnt()) << "that the part is small is nothing that the link taught us";
  learn(0.2);
  const double learnt = budget_.rate();
  EXPECT_LE(learnt, 0.21 * kTold);
  EXPECT_GE(learnt, 0.09 * kTold) << "one cut halves at most what arrives";
  budget_.set_part(0.05 * kTold);
  EXPECT_EQ(budget_.rate(), 0.05 * kTold);
  EXPECT_FALSE(budget_.learnt());
  budget_.set_part(kTold);
  EXPECT_EQ(budget_.rate(), learnt);
  EXPECT_TRUE(budget_.learnt());
}

TEST_F(CcPaceLinkBudget, FillingItsPartIsNoReasonToDoubt) {
  budget_.set_part(0.25 * kTold);
  arrive(0.25, kQueue, Duration::from_ms(50));
  EXPECT_EQ(budget_.rate(), 0.25 * kTold);
  EXPECT_FALSE(budget_.learnt());
}

TEST_F(CcPaceLinkBudget, ALongPauseForgetsWhereARateWasTold) {
  arrive(0.2, kQueue, Duration::from_ms(20));
  const double learnt = budget_.rate();
  now_ = now_ + Duration::from_ms(5);
  arrive(0.2, kQueue, kWindow);
  EXPECT_LE(budget_.rate(), learnt) << "a short pause forgets nothing";
  now_ = now_ + Duration::from_s(30);
  budget_.on_bytes(now_, kPacket, kQueue);
  EXPECT_EQ(budget_.rate(), kTold);
}

TEST_F(CcPaceLinkBudget, ADelayThatIsNotKnownIsNoQueue) {
  arrive(0.5, Duration::max(), Duration::from_s(1));
  EXPECT_EQ(budget_.rate(), kTold);
  budget_.set_part(0.9 * kTold);
  learn(0.5);
  arrive(share(), Duration::max(), kWindow * 4);
  const double learnt = budget_.rate();
  arrive(learnt / kTold, Duration::max(), Duration::from_s(1));
  EXPECT_GE(budget_.rate(), learnt);
}

TEST_F(CcPaceLinkBudget, OneWhoIsPatientYieldsLater) {
  budget_.set_patience(8);
  arrive(0.5, kQueue, Duration::from_ms(20));
  EXPECT_EQ(budget_.rate(), kTold);
  budget_.set_patience(1);
  arrive(0.5, kQueue, Duration::from_ms(20));
  EXPECT_LT(share(), 0.52);
}

TEST_F(CcPaceLinkBudget, LossesByChanceDoNothing) {
  for (int i = 0; i < 200; ++i) {
    budget_.on_loss(kPacket);
    arrive(0.9, Duration(), kWindow * 4);
  }
  EXPECT_EQ(budget_.rate(), kTold);
}

// A change is told once, to those who ask with what arrives.
TEST_F(CcPaceLinkBudget, SaysWhenTheRateIsAnother) {
  double known = budget_.rate();
  for (int i = 0; i < 2000; ++i) {
    now_ = now_ + Duration::from_us(67);  // 0.5 of the told rate
    const bool told = budget_.on_bytes(now_, kPacket, i < 1000 ? kQueue : Duration());
    EXPECT_EQ(told, budget_.rate() != known);
    known = budget_.rate();
  }
  EXPECT_LT(known, kTold);
}

// A queue that never empties could be taken for the path.
TEST_F(CcPaceLinkBudget, SlowsDownNowAndThenToSeeTheEmptyPath) {
  arrive(0.3, kQueue, Duration::from_ms(20));
  double least = 1;
  double most = 0;
  for (int i = 0; i < 2000; ++i) {
    arrive(std::min(share(), 0.3), Duration::from_us(120), kWindow);  // within what is usual
    least = std::min(least, share() / std::max(most, share()));
    most = std::max(most, share());
  }
  EXPECT_LT(least, 0.9);
  EXPECT_GT(share(), 0.2) << "for a moment only";
}

// --- a link with a queue ---

// Sends what the budget allows over a link of `rate` with a delay that others keep there; what it
// does not carry waits, or is dropped where the link polices.
class Link {
 public:
  explicit Link(const LinkBudgetConfig& config) : budget_(config) {}

  void run(Duration span) {
    for (const Instant end = now_ + span;;) {
      const bool arrives = !flying_.empty() && flying_.front().arrival <= next_;
      const Instant at = arrives ? flying_.front().arrival : next_;
      now_ = std::min(at, end);
      if (at > end) return;
      arrives ? arrive() : send();
    }
  }

  LinkBudget& budget() { return budget_; }
  double rate() const { return budget_.rate(); }
  // Since it was asked for last.
  double take_least() { return std::exchange(least_, rate()); }
  Duration take_longest() { return std::exchange(longest_, Duration()); }
  double take_use() {
    const double span = (now_ - asked_).seconds();
    asked_ = now_;
    return static_cast<double>(std::exchange(arrived_, 0)) * kPacket * 8 / span / link;
  }
  double take_lost() {
    const double lost = sent_ > 0 ? static_cast<double>(lost_) / sent_ : 0;
    lost_ = sent_ = 0;
    return lost;
  }

  double link = kTold;
  bool polices = false;
  Duration standing;  // what others keep

 private:
  struct Flying {
    Instant arrival;
    Duration late;
  };

  void send() {
    const double wanted = rate();
    next_ = now_ + Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / wanted));
    ++sent_;
    const Duration wait = std::max(free_ - now_, Duration());
    if (polices && wait > Duration::from_us(200)) {
      ++lost_;
      budget_.on_loss(kPacket);
      return;
    }
    free_ = now_ + wait + Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / link));
    const Duration queue = polices ? Duration() : wait;
    longest_ = std::max(longest_, queue);
    flying_.push_back({now_ + kRoundTrip + queue + standing, queue + standing});
  }
  void arrive() {
    budget_.on_bytes(now_, kPacket, flying_.front().late);
    flying_.pop_front();
    ++arrived_;
    least_ = std::min(least_, rate());
  }

  LinkBudget budget_;
  Instant now_ = Instant::from_ns(1'000'000'000);
  Instant next_ = now_;
  Instant free_ = now_;
  std::deque<Flying> flying_;
  double least_ = 1e18;
  Duration longest_;
  Instant asked_ = now_;
  int arrived_ = 0;
  int sent_ = 0;
  int lost_ = 0;
};

TEST(CcPaceLinkBudgetLink, FindsWhatTheLinkGivesAndKeepsTheQueueShort) {
  for (const double given : {0.8, 0.5, 0.1}) {
    Link link(config());
    link.link = given * kTold;
    link.run(Duration::from_ms(200));
    link.take_longest();
    link.take_use();
    double most = 0;
    for (int i = 0; i < 200; ++i) {
      link.run(Duration::from_ms(1));
      most = std::max(most, link.rate());
    }
    EXPECT_LE(most, 1.4 * link.link) << "a probe";
    EXPECT_GE(link.take_use(), 0.85);
    // What is usual (0.16 ms), a part of a packet, and what a probe adds until it is seen.
    EXPECT_LT(link.take_longest(), Duration::from_ms(2)) << given;
  }
}

TEST(CcPaceLinkBudgetLink, GrowsBackWhenTheLinkDoes) {
  Link link(config());
  link.link = 0.2 * kTold;
  link.run(Duration::from_ms(200));
  ASSERT_LT(link.rate(), 0.25 * kTold);
  link.link = kTold;
  link.run(Duration::from_ms(200));
  EXPECT_GT(link.rate(), 0.95 * kTold);
}

TEST(CcPaceLinkBudgetLink, BeginsAtTheFirstRateAndGrowsWithoutAQueue) {
  Link link(config(0.02 * kTold));
  EXPECT_EQ(link.rate(), 0.02 * kTold);
  EXPECT_TRUE(link.budget().starting());
  double before = link.rate();
  for (int i = 0; i < 200; ++i) {
    link.run(kWindow);
    EXPECT_GE(link.rate(), before);
    EXPECT_LE(link.rate(), 2.3 * before) << "as the first packets of TCP do, not faster";
    before = link.rate();
  }
  EXPECT_EQ(link.rate(), kTold);
  EXPECT_FALSE(link.budget().starting());
}

TEST(CcPaceLinkBudgetLink, TheStartEndsWithTheFirstQueue) {
  Link link(config(0.02 * kTold));
  link.link = 0.3 * kTold;
  link.run(Duration::from_ms(200));
  EXPECT_FALSE(link.budget().starting());
  EXPECT_GE(link.rate(), 0.7 * link.link);
  EXPECT_LE(link.rate(), 1.15 * link.link);
}

TEST(CcPaceLinkBudgetLink, ALongPauseKeepsWhatWasLearntWhereNothingWasTold) {
  Link link(config(0.02 * kTold));
  link.link = 0.3 * kTold;
  link.run(Duration::from_ms(200));
  LinkBudget& budget = link.budget();
  budget.on_bytes(Instant::from_ns(100'000'000'000), kPacket, Duration());
  EXPECT_GE(budget.rate(), 0.6 * link.link);
  EXPECT_LE(budget.rate(), 1.15 * link.link);
}

TEST(CcPaceLinkBudgetLink, SettlesBelowAPolicer) {
  Link link(config());
  link.link = 0.5 * kTold;
  link.polices = true;
  link.run(Duration::from_ms(100));
  EXPECT_LT(link.rate(), 1.05 * link.link);
  link.take_lost();
  double sum = 0;
  for (int i = 0; i < 100; ++i) {
    link.run(Duration::from_ms(10));
    sum += link.rate() / 100;
    EXPECT_GE(link.rate(), 0.7 * link.link);
  }
  EXPECT_GE(sum, 0.8 * link.link);
  EXPECT_LE(sum, 1.1 * link.link);
  EXPECT_LT(link.take_lost(), 0.1) << "it had been half";
}

TEST(CcPaceLinkBudgetLink, HoldsHalfOfTheLinkAgainstOneWhoKeepsAQueueWhateverWeDo) {
  Link link(config());
  link.link = 0.6 * kTold;
  link.standing = Duration::from_ms(3);
  link.run(Duration::from_ms(20));
  link.take_least();
  link.run(Duration::from_ms(60));
  EXPECT_LT(link.take_least(), 0.4 * kTold) << "it has yielded first";
  link.run(Duration::from_ms(300));
  EXPECT_GE(link.take_least(), 0.4 * kTold) << "and takes its part back at once";
}

TEST(CcPaceLinkBudgetLink, ANeighborThatIsGoneIsForgotten) {
  Link link(config());
  link.link = 0.6 * kTold;
  link.standing = Duration::from_ms(3);
  link.run(Duration::from_ms(500));
  link.standing = Duration();
  link.link = kTold;
  link.run(Duration::from_ms(300));
  EXPECT_GT(link.rate(), 0.9 * kTold);
  link.link = 0.2 * kTold;
  link.run(Duration::from_ms(300));
  link.take_longest();
  double sum = 0;
  for (int i = 0; i < 100; ++i) {
    link.run(Duration::from_ms(1));
    sum += link.rate() / 100;
  }
  EXPECT_GE(sum, 0.95 * link.link);
  EXPECT_LE(sum, 1.05 * link.link);
  EXPECT_LT(link.take_longest(), Duration::from_ms(2)) << "what it kept is too long again";
}

// --- ArrivalMeter ---

class CcPaceArrivalMeter : public ::testing::Test {
 protected:
  // How many looks were over.
  int arrive(Duration gap, int packets, Duration late) {
    int looks = 0;
    for (int i = 0; i < packets; ++i) {
      now_ = now_ + gap;
      looks += meter_.on_bytes(now_, kPacket, late) ? 1 : 0;
    }
    return looks;
  }

  ArrivalMeter meter_{Duration::from_ms(1), Duration::from_us(300), kPacket};
  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcPaceArrivalMeter, CountsWhatHasArrivedInAWindow) {
  meter_.begin(now_);
  EXPECT_GT(arrive(Duration::from_us(20), 100, Duration()), 2);
  EXPECT_NEAR(meter_.rate(), kPacket * 8 / 20e-6, 0.02 * meter_.rate());
  arrive(Duration::from_us(40), 100, Duration());
  EXPECT_NEAR(meter_.rate(), kPacket * 8 / 40e-6, 0.02 * meter_.rate());
}

TEST_F(CcPaceArrivalMeter, TheLeastDelayIsThatOfARoundTrip) {
  meter_.begin(now_);
  arrive(Duration::from_us(10), 100, Duration::from_us(500));
  EXPECT_EQ(meter_.delay(), Duration::from_us(500));
  arrive(Duration::from_us(10), 1, Duration::from_us(50));
  arrive(Duration::from_us(10), 30, Duration::from_us(500));
  EXPECT_EQ(meter_.delay(), Duration::from_us(50)) << "one has met no queue";
  arrive(Duration::from_us(10), 100, Duration::from_us(500));
  EXPECT_EQ(meter_.delay(), Duration::from_us(500)) << "that was long ago";
  arrive(Duration::from_us(10), 100, Duration::max());
  EXPECT_EQ(meter_.delay(), Duration::max());
}

TEST_F(CcPaceArrivalMeter, FewPacketsSayNothing) {
  meter_.begin(now_);
  now_ = now_ + Duration::from_us(500);
  EXPECT_EQ(arrive(Duration::from_us(1), 3, Duration()), 0) << "within a window";
  EXPECT_GT(arrive(Duration::from_us(1), 20, Duration()), 0);
  meter_.begin(now_);
  EXPECT_EQ(arrive(Duration::from_ms(5), 1, Duration()), 0) << "one packet, however late";
  EXPECT_EQ(arrive(Duration::from_ms(5), 1, Duration()), 1);
  EXPECT_EQ(arrive(ArrivalMeter::kLongestLook, 1, Duration()), 1) << "but not for ever";
}

TEST_F(CcPaceArrivalMeter, APauseLowersTheRate) {
  meter_.begin(now_);
  arrive(Duration::from_us(20), 100, Duration());
  now_ = now_ + Duration::from_ms(20);
  arrive(Duration::from_us(20), 2, Duration());
  EXPECT_LT(meter_.rate(), 0.1 * kPacket * 8 / 20e-6);
}

// --- GreedyNeighbor ---

class CcPaceGreedyNeighbor : public ::testing::Test {
 protected:
  static constexpr Duration kUsual = Duration::from_us(100);
  static constexpr Duration kTrip = Duration::from_us(200);
  static constexpr Duration kKept = Duration::from_ms(1);

  // True if it was recognized meanwhile.
  bool look(Duration delay, Duration span) {
    bool recognized = false;
    for (const Instant end = now_ + span; now_ < end; now_ = now_ + kTrip / 4) {
      recognized |= neighbor_.look(now_, delay, kUsual, kTrip, rate_ *= yields_);
    }
    return recognized;
  }

  GreedyNeighbor neighbor_;
  double rate_ = 1e9;
  double yields_ = 0.99;  // each quarter of a round trip
  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcPaceGreedyNeighbor, OneWhoKeepsADelayIsRecognizedOnce) {
  EXPECT_FALSE(look(kKept, (kKept + kTrip) * 2));
  EXPECT_EQ(neighbor_.kept(), Duration());
  EXPECT_TRUE(look(kKept, (kKept + kTrip) * 20));
  EXPECT_NEAR(neighbor_.kept().us(), kKept.us(), 0.1 * kKept.us());
  EXPECT_FALSE(look(kKept, (kKept + kTrip) * 20));
}

TEST_F(CcPaceGreedyNeighbor, DelaysThatUsersOfOurLawAgreeOnAreNone) {
  EXPECT_FALSE(look(kUsual * 2, Duration::from_s(1)));
  EXPECT_EQ(neighbor_.kept(), Duration());
}

TEST_F(CcPaceGreedyNeighbor, AQueueThatFallsBelongsToOneWhoYields) {
  for (int i = 0; i < 50; ++i) {
    EXPECT_FALSE(look(kKept, (kKept + kTrip) * 3));
    EXPECT_FALSE(look(kKept / 2, kTrip));
  }
  EXPECT_EQ(neighbor_.kept(), Duration());
}

// Had all who keep the queue yielded as little, it would stand all the same.
TEST_F(CcPaceGreedyNeighbor, WhoHasNotYieldedKnowsNothing) {
  yields_ = 1;
  EXPECT_FALSE(look(kKept, (kKept + kTrip) * 100));
  yields_ = 0.99;
  EXPECT_TRUE(look(kKept, (kKept + kTrip) * 20));
}

TEST_F(CcPaceGreedyNeighbor, ADelayThatStaysIsDoubtedBefore) {
  look(kKept, kTrip);
  EXPECT_FALSE(neighbor_.stays());
  look(kKept, (kKept + kTrip) * 6);
  EXPECT_TRUE(neighbor_.stays());
  EXPECT_EQ(neighbor_.kept(), Duration());
  look(kUsual, kTrip);
  EXPECT_FALSE(neighbor_.stays());
}

TEST_F(CcPaceGreedyNeighbor, IsForgottenWhenItsDelayIsGone) {
  look(kKept, (kKept + kTrip) * 30);
  ASSERT_GT(neighbor_.kept(), Duration());
  look(kKept * 3 / 4, (kKept + kTrip) * 10);
  EXPECT_GT(neighbor_.kept(), Duration()) << "most of it is there";
  look(kUsual, (kKept + kTrip) * 10);
  EXPECT_EQ(neighbor_.kept(), Duration());
}

TEST_F(CcPaceGreedyNeighbor, IsLookedAtAgainAfterAWhile) {
  look(kKept, (kKept + kTrip) * 30);
  bool forgotten = false;
  for (const Instant end = now_ + Duration::from_s(10); now_ < end;) {
    look(kKept, kTrip);
    forgotten |= neighbor_.kept() == Duration();
  }
  EXPECT_TRUE(forgotten);
}

}  // namespace
}  // namespace pacecar
