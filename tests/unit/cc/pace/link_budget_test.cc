// LinkBudget alone: with scripted arrivals and delays, and on a model of a link with a queue.
#include "cc/pace/link_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

namespace pacecar::link_budget_test {
namespace {

constexpr double kNominal = 1e9;
constexpr Bytes kPacket = 4200;
constexpr Duration kRoundTrip = Duration::from_us(100);
constexpr Duration kBaseMemory = Duration::from_ms(400);
// The law's window here: 16 packets at the nominal rate.
constexpr Duration kWindow = Duration::from_us(540);
// Longer than every delay that is tolerated, but too short for a greedy neighbor.
constexpr Duration kQueue = Duration::from_us(500);

LinkBudgetConfig config(double first = 0) {
  return {.line = Rate::from_bps(static_cast<uint64_t>(kNominal)),
          .first = Rate::from_bps(static_cast<uint64_t>(first)),
          .packet = kPacket,
          .round_trip = kRoundTrip,
          .jitter = Duration::from_us(10),
          .base_memory = kBaseMemory};
}

// --- scripted arrivals ---

class CcPaceLinkBudget : public ::testing::Test {
 protected:
  // Packets at `share` of the nominal rate, all with this delay.
  void arrive(double share, Duration late, Duration span) {
    const auto gap = static_cast<int64_t>(kPacket * 8e9 / (kNominal * share));
    for (const Instant end = now_ + span; now_ < end; now_ = now_ + Duration::from_ns(gap)) {
      budget_.on_bytes(now_, kPacket, late);
    }
  }
  // Packets at the whole budget, however small.
  void use_all(Duration late, Duration span) {
    for (const Instant end = now_ + span; now_ < end;) {
      now_ = now_ + Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / budget_.rate()));
      budget_.on_bytes(now_, kPacket, late);
    }
  }
  // A queue stands until the budget has learnt.
  void learn(double share) {
    for (int i = 0; i < 20 && !budget_.learnt(); ++i) arrive(share, kQueue, kWindow);
    ASSERT_TRUE(budget_.learnt());
  }
  double share() const { return budget_.rate() / kNominal; }

  LinkBudget budget_{config()};
  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcPaceLinkBudget, NominalRateStaysWhileArrivalsFillIt) {
  EXPECT_EQ(budget_.rate(), kNominal);
  arrive(1, kQueue, Duration::from_ms(100));
  EXPECT_EQ(budget_.rate(), kNominal) << "our own packets make the queue";
  EXPECT_FALSE(budget_.learnt());
  arrive(0.1, Duration(), Duration::from_ms(100));
  EXPECT_EQ(budget_.rate(), kNominal) << "low use without a queue teaches nothing";
}

TEST_F(CcPaceLinkBudget, StandingQueueReducesTheBudgetAfterSomeWindows) {
  arrive(0.5, Duration(), kWindow * 10);
  arrive(0.5, kQueue, kWindow * 2);
  EXPECT_EQ(budget_.rate(), kNominal);
  arrive(0.5, kQueue, kWindow * 10);
  EXPECT_TRUE(budget_.learnt());
  EXPECT_LT(share(), 0.52);
}

TEST_F(CcPaceLinkBudget, PassingQueuesDoNotReduceTheBudget) {
  for (int i = 0; i < 50; ++i) {
    arrive(0.5, Duration(), kWindow * 2);
    arrive(0.5, kQueue, kWindow * 2);
  }
  EXPECT_EQ(budget_.rate(), kNominal);
}

TEST_F(CcPaceLinkBudget, BudgetFollowsArrivalsUnderAStandingQueue) {
  for (const double given : {0.7, 0.4, 0.1}) {
    arrive(given, kQueue, Duration::from_ms(20));
    EXPECT_LE(share(), given * 1.02);
  }
}

// The draining part of a cut is temporary; the budget then is what the link gave.
TEST_F(CcPaceLinkBudget, DrainingCutEndsWithTheQueue) {
  learn(0.5);
  EXPECT_LT(share(), 0.43) << "the queue is drained";
  arrive(share(), Duration(), (kWindow + kQueue) * 3);
  EXPECT_NEAR(share(), 0.5, 0.05);
}

// Otherwise a queue that others keep would be drained for ever, a little at a time.
TEST_F(CcPaceLinkBudget, CutLastsWhileTheQueueStays) {
  learn(0.5);
  constexpr Duration kStays = Duration::from_ms(1);
  for (int i = 0; i < 40; ++i) arrive(share(), kStays, (kWindow + kStays) / 4);
  EXPECT_LT(share(), 0.08);
}

// The smaller the budget, the longer the delay that its law tolerates. So without a bound, a
// neighbor whose queue swings (cubic) would starve us.
TEST_F(CcPaceLinkBudget, SwingingQueueDoesNotStarveTheBudget) {
  learn(0.5);
  for (int i = 0; i < 60; ++i) {
    use_all(Duration::from_ms(i % 2 == 0 ? 12 : 30), Duration::from_ms(60));
  }
  use_all(Duration::from_ms(12), Duration::from_s(1));
  EXPECT_GT(share(), 0.25);
}

TEST_F(CcPaceLinkBudget, BurstsAtTheFullBudgetLetItGrow) {
  LinkBudget budget(config(0.1 * kNominal));
  // 20 packets at the full budget, then an equally long pause.
  for (int burst = 0; burst < 200; ++burst) {
    const auto gap = Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / budget.rate()));
    for (int i = 0; i < 20; ++i, now_ = now_ + gap) budget.on_bytes(now_, kPacket, Duration());
    now_ = now_ + gap * 20;
  }
  EXPECT_EQ(budget.rate(), kNominal);
}

TEST_F(CcPaceLinkBudget, UnusedBudgetDoesNotGrow) {
  LinkBudget budget(config(0.1 * kNominal));
  for (int i = 0; i < 10'000; ++i) {
    now_ = now_ + Duration::from_us(840);  // 0.04 of the nominal rate
    budget.on_bytes(now_, kPacket, Duration());
  }
  EXPECT_EQ(budget.rate(), 0.1 * kNominal);
}

// Such bursts arise as packets meet by chance, or as a host takes packets late and all at once.
TEST_F(CcPaceLinkBudget, AccidentalBurstsDoNotGrowTheBudget) {
  LinkBudget budget(config(0.1 * kNominal));
  const Duration gap = Duration::from_us(840);
  for (int i = 0; i < 500; ++i) {
    const bool meet = i % 2 == 0;
    const int packets = meet ? 10 : 40;
    now_ = now_ + gap * 50;
    for (int late = packets; late-- > 0;) {
      budget.on_bytes(now_, kPacket, meet ? Duration() : gap * late);
    }
  }
  EXPECT_EQ(budget.rate(), 0.1 * kNominal);
}

TEST_F(CcPaceLinkBudget, PartCapsTheBudgetAndKeepsWhatIsLearnt) {
  budget_.set_part(0.3 * kNominal);
  EXPECT_EQ(budget_.rate(), 0.3 * kNominal);
  EXPECT_FALSE(budget_.learnt()) << "a small part is not learnt from the link";
  learn(0.2);
  const double learnt = budget_.rate();
  EXPECT_LE(learnt, 0.21 * kNominal);
  EXPECT_GE(learnt, 0.09 * kNominal) << "one cut halves at most what arrives";
  budget_.set_part(0.05 * kNominal);
  EXPECT_EQ(budget_.rate(), 0.05 * kNominal);
  EXPECT_FALSE(budget_.learnt());
  budget_.set_part(kNominal);
  EXPECT_EQ(budget_.rate(), learnt);
  EXPECT_TRUE(budget_.learnt());
}

TEST_F(CcPaceLinkBudget, QueueWhileThePartIsFilledDoesNotReduceTheBudget) {
  budget_.set_part(0.25 * kNominal);
  arrive(0.25, kQueue, Duration::from_ms(50));
  EXPECT_EQ(budget_.rate(), 0.25 * kNominal);
  EXPECT_FALSE(budget_.learnt());
}

TEST_F(CcPaceLinkBudget, LongPauseRestoresTheNominalRate) {
  arrive(0.2, kQueue, Duration::from_ms(20));
  const double learnt = budget_.rate();
  now_ = now_ + Duration::from_ms(5);
  arrive(0.2, kQueue, kWindow);
  EXPECT_LE(budget_.rate(), learnt) << "a short pause forgets nothing";
  now_ = now_ + Duration::from_s(30);
  budget_.on_bytes(now_, kPacket, kQueue);
  EXPECT_EQ(budget_.rate(), kNominal);
}

TEST_F(CcPaceLinkBudget, UnknownDelayIsNoQueue) {
  arrive(0.5, Duration::max(), Duration::from_s(1));
  EXPECT_EQ(budget_.rate(), kNominal);
  budget_.set_part(0.9 * kNominal);
  learn(0.5);
  arrive(share(), Duration::max(), kWindow * 4);
  const double learnt = budget_.rate();
  arrive(learnt / kNominal, Duration::max(), Duration::from_s(1));
  EXPECT_GE(budget_.rate(), learnt);
}

TEST_F(CcPaceLinkBudget, PatienceDelaysTheCut) {
  budget_.set_patience(8);
  arrive(0.5, kQueue, Duration::from_ms(20));
  EXPECT_EQ(budget_.rate(), kNominal);
  budget_.set_patience(1);
  arrive(0.5, kQueue, Duration::from_ms(20));
  EXPECT_LT(share(), 0.52);
}

// Packets of many processes meet by chance, also on a link at its nominal rate.
TEST_F(CcPaceLinkBudget, LongerDelayIsToleratedAmongManyProcesses) {
  budget_.set_weight(1, 1.0 / 64);  // 32 packets, 1.1 ms
  arrive(0.5, kQueue, Duration::from_ms(20));
  EXPECT_EQ(budget_.rate(), kNominal);
  budget_.set_weight(1, 1);
  arrive(0.5, kQueue, Duration::from_ms(20));
  EXPECT_LT(share(), 0.52);
}

// on_bytes returns each change once.
TEST_F(CcPaceLinkBudget, OnBytesReportsEveryChangeOfTheRate) {
  double known = budget_.rate();
  for (int i = 0; i < 2000; ++i) {
    now_ = now_ + Duration::from_us(67);  // 0.5 of the nominal rate
    const bool changed = budget_.on_bytes(now_, kPacket, i < 1000 ? kQueue : Duration());
    EXPECT_EQ(changed, budget_.rate() != known);
    known = budget_.rate();
  }
  EXPECT_LT(known, kNominal);
}

// A queue that never empties could be taken for the path.
TEST_F(CcPaceLinkBudget, BudgetDipsNowAndThenToMeasureTheEmptyPath) {
  arrive(0.3, kQueue, Duration::from_ms(20));
  double least = 1;
  double most = 0;
  for (int i = 0; i < 2000; ++i) {
    arrive(std::min(share(), 0.3), Duration::from_us(120), kWindow);  // a tolerated delay
    least = std::min(least, share() / std::max(most, share()));
    most = std::max(most, share());
  }
  EXPECT_LT(least, 0.9);
  EXPECT_GT(share(), 0.2) << "for a moment only";
}

// --- a link with a queue ---

// Sends at the budget over a link of the rate `link`, behind a queue `standing` of others.
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

  // The link serves others, or its software device waits for a core.
  void stop_for(Duration span) { free_ = std::max(free_, now_) + span; }

  LinkBudget& budget() { return budget_; }
  double rate() const { return budget_.rate(); }
  // Each take_ function covers the time since its last call.
  double take_least() { return std::exchange(least_, rate()); }
  Duration take_longest() { return std::exchange(longest_, Duration()); }
  double take_use() {
    const double span = (now_ - asked_).seconds();
    asked_ = now_;
    return static_cast<double>(std::exchange(arrived_, 0)) * kPacket * 8 / span / link;
  }

  double link = kNominal;
  Duration standing;  // delay of the queue that others keep

 private:
  struct Flying {
    Instant arrival;
    Duration late;
  };

  void send() {
    const double wanted = rate();
    next_ = now_ + Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / wanted));
    const Duration queue = std::max(free_ - now_, Duration());
    free_ = now_ + queue + Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / link));
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
};

TEST(CcPaceLinkBudgetLink, BudgetFindsTheLinkRateAndKeepsTheQueueShort) {
  for (const double given : {0.8, 0.5, 0.1}) {
    Link link(config());
    link.link = given * kNominal;
    link.run(Duration::from_ms(200));
    link.take_longest();
    link.take_use();
    double most = 0;
    for (int i = 0; i < 200; ++i) {
      link.run(Duration::from_ms(1));
      most = std::max(most, link.rate());
    }
    EXPECT_LE(most, 1.4 * link.link) << "a probe may exceed the link for a moment";
    EXPECT_GE(link.take_use(), 0.85);
    // The tolerated delay (0.16 ms), a part of a packet, and what a probe adds until its delay is
    // measured.
    EXPECT_LT(link.take_longest(), Duration::from_ms(2)) << given;
  }
}

TEST(CcPaceLinkBudgetLink, BudgetGrowsWhenTheLinkDoes) {
  Link link(config());
  link.link = 0.2 * kNominal;
  link.run(Duration::from_ms(200));
  ASSERT_LT(link.rate(), 0.25 * kNominal);
  link.link = kNominal;
  link.run(Duration::from_ms(200));
  EXPECT_GT(link.rate(), 0.95 * kNominal);
}

// The queue of a stop does not reduce the budget once it has drained.
TEST(CcPaceLinkBudgetLink, LinkThatStopsRepeatedlyIsUsed) {
  Link link(config());
  link.link = 0.5 * kNominal;
  for (int i = 0; i < 150; ++i) {
    if (i == 50) link.take_use();
    link.stop_for(Duration::from_ms(10));
    link.run(Duration::from_ms(20));
  }
  EXPECT_GE(link.take_use(), 0.3) << "of 0.5";
}

TEST(CcPaceLinkBudgetLink, BudgetGrowsFromTheFirstRateWithoutAQueue) {
  Link link(config(0.02 * kNominal));
  EXPECT_EQ(link.rate(), 0.02 * kNominal);
  EXPECT_TRUE(link.budget().starting());
  double before = link.rate();
  for (int i = 0; i < 200; ++i) {
    link.run(kWindow);
    EXPECT_GE(link.rate(), before);
    EXPECT_LE(link.rate(), 2.3 * before) << "at most as fast as TCP's slow start";
    before = link.rate();
  }
  EXPECT_EQ(link.rate(), kNominal);
  EXPECT_FALSE(link.budget().starting());
}

TEST(CcPaceLinkBudgetLink, StartPhaseEndsWithTheFirstQueue) {
  Link link(config(0.02 * kNominal));
  link.link = 0.3 * kNominal;
  link.run(Duration::from_ms(200));
  EXPECT_FALSE(link.budget().starting());
  EXPECT_GE(link.rate(), 0.7 * link.link);
  EXPECT_LE(link.rate(), 1.15 * link.link);
}

TEST(CcPaceLinkBudgetLink, LongPauseKeepsTheLearntRateOfALinkOfUnknownRate) {
  Link link(config(0.02 * kNominal));
  link.link = 0.3 * kNominal;
  link.run(Duration::from_ms(200));
  LinkBudget& budget = link.budget();
  budget.on_bytes(Instant::from_ns(100'000'000'000), kPacket, Duration());
  EXPECT_GE(budget.rate(), 0.6 * link.link);
  EXPECT_LE(budget.rate(), 1.15 * link.link);
}

TEST(CcPaceLinkBudgetLink, BudgetKeepsItsShareAgainstAGreedyNeighbor) {
  Link link(config());
  link.link = 0.6 * kNominal;
  link.standing = Duration::from_ms(3);
  link.run(Duration::from_ms(20));
  link.take_least();
  link.run(Duration::from_ms(60));
  EXPECT_LT(link.take_least(), 0.4 * kNominal) << "the budget yields first";
  link.run(Duration::from_ms(300));
  EXPECT_GE(link.take_least(), 0.4 * kNominal) << "the budget then keeps its share";
}

TEST(CcPaceLinkBudgetLink, NeighborIsForgottenWhenItLeaves) {
  Link link(config());
  link.link = 0.6 * kNominal;
  link.standing = Duration::from_ms(3);
  link.run(Duration::from_ms(500));
  link.standing = Duration();
  link.link = kNominal;
  link.run(Duration::from_ms(300));
  EXPECT_GT(link.rate(), 0.9 * kNominal);
  link.link = 0.2 * kNominal;
  link.run(Duration::from_ms(300));
  link.take_longest();
  double sum = 0;
  for (int i = 0; i < 100; ++i) {
    link.run(Duration::from_ms(1));
    sum += link.rate() / 100;
  }
  EXPECT_GE(sum, 0.95 * link.link);
  EXPECT_LE(sum, 1.05 * link.link);
  EXPECT_LT(link.take_longest(), Duration::from_ms(2))
      << "the neighbor's delay is no longer tolerated";
}

}  // namespace
}  // namespace pacecar::link_budget_test
