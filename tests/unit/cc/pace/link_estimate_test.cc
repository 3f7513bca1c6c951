// LinkEstimate alone: with scripted arrivals and delays, and on a model of a link with a queue.
#include "cc/pace/link_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "tests/unit/cc/pace/covered_estimate.h"

namespace pacecar::link_estimate_test {
namespace {

using namespace test;

// --- scripted arrivals ---

class CcPaceLinkEstimate : public ::testing::Test {
 protected:
  // Packets at `share` of the nominal rate, all with this delay.
  void arrive(double share, Duration late, Duration span) {
    estimate_.arrive(now_, kNominal * share, late, span);
  }
  // A queue stands until the estimate has learnt.
  void learn(double share) {
    for (int i = 0; i < 20 && !estimate_.learnt(); ++i) arrive(share, kQueue, kWindow);
    ASSERT_TRUE(estimate_.learnt());
  }
  double share() const { return estimate_.rate() / kNominal; }

  CoveredEstimate estimate_;
  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcPaceLinkEstimate, NominalRateStaysWhileArrivalsFillIt) {
  EXPECT_EQ(estimate_.rate(), kNominal);
  arrive(1, kQueue, Duration::from_ms(100));
  EXPECT_EQ(estimate_.rate(), kNominal) << "our own packets make the queue";
  arrive(0.1, Duration(), Duration::from_ms(100));
  EXPECT_EQ(estimate_.rate(), kNominal) << "low use without a queue teaches nothing";
}

TEST_F(CcPaceLinkEstimate, StandingQueueReducesTheEstimateAfterSomeWindows) {
  arrive(0.5, Duration(), kWindow * 10);
  arrive(0.5, kQueue, kWindow * 2);
  EXPECT_EQ(estimate_.rate(), kNominal);
  arrive(0.5, kQueue, kWindow * 10);
  EXPECT_LT(share(), 0.52);
}

TEST_F(CcPaceLinkEstimate, PassingQueuesDoNotReduceTheEstimate) {
  for (int i = 0; i < 50; ++i) {
    arrive(0.5, Duration(), kWindow * 2);
    arrive(0.5, kQueue, kWindow * 2);
  }
  EXPECT_EQ(estimate_.rate(), kNominal);
}

TEST_F(CcPaceLinkEstimate, EstimateFollowsArrivalsUnderAStandingQueue) {
  for (const double given : {0.7, 0.4, 0.1}) {
    arrive(given, kQueue, Duration::from_ms(20));
    EXPECT_LE(share(), given * 1.02);
  }
}

// The draining part of a cut is temporary; the estimate then is what the link gave.
TEST_F(CcPaceLinkEstimate, DrainingCutEndsWithTheQueue) {
  learn(0.5);
  EXPECT_LT(share(), 0.43) << "the queue is drained";
  arrive(share(), Duration(), (kWindow + kQueue) * 3);
  EXPECT_NEAR(share(), 0.5, 0.05);
}

// If a queue stays although it is drained, the arrivals meanwhile are all that the link carries.
TEST_F(CcPaceLinkEstimate, EstimateFallsWhileTheQueueStays) {
  learn(0.5);
  constexpr Duration kStays = Duration::from_ms(1);
  for (int i = 0; i < 40; ++i) arrive(share(), kStays, (kWindow + kStays) / 4);
  EXPECT_LT(share(), 0.13);
}

// The smaller the estimate, the longer the delay that its law tolerates. So without a bound, a
// neighbour whose queue swings (cubic) would starve us.
TEST_F(CcPaceLinkEstimate, SwingingQueueDoesNotStarveTheEstimate) {
  learn(0.5);
  for (int i = 0; i < 60; ++i) {
    estimate_.use(now_, 1, Duration::from_ms(i % 2 == 0 ? 12 : 30), Duration::from_ms(60));
  }
  estimate_.use(now_, 1, Duration::from_ms(12), Duration::from_s(1));
  EXPECT_GT(share(), 0.25);
}

TEST_F(CcPaceLinkEstimate, BurstsAtTheFullEstimateLetItGrow) {
  CoveredEstimate estimate(slow_link(0.1 * kNominal));
  // 20 packets at the full rate, then an equally long pause.
  for (int burst = 0; burst < 200; ++burst) {
    const Duration gap = estimate.time_at(estimate.rate());
    for (int i = 0; i < 20; ++i, now_ = now_ + gap) estimate.on_packet(now_, Duration());
    now_ = now_ + gap * 20;
  }
  EXPECT_EQ(estimate.rate(), kNominal);
}

// Senders that can use less than the link's rate ask for no more.
TEST_F(CcPaceLinkEstimate, EstimateThatTheSendersCannotUseDoesNotGrow) {
  CoveredEstimate estimate(slow_link(0.1 * kNominal));
  for (const double usable : {0.04, 0.087, 0.088}) {
    estimate.link().set_use(usable * kNominal, 1);
    estimate.arrive(now_, 0.04 * kNominal, Duration(), Duration::from_ms(100));
    EXPECT_EQ(estimate.rate() == 0.1 * kNominal, usable < 0.0875) << usable;
  }
}

TEST_F(CcPaceLinkEstimate, PartCapsTheEstimateAndKeepsWhatIsLearnt) {
  estimate_.set_part(0.3 * kNominal);
  EXPECT_EQ(estimate_.rate(), 0.3 * kNominal);
  learn(0.2);
  const double learnt = estimate_.rate();
  EXPECT_LE(learnt, 0.21 * kNominal);
  EXPECT_GE(learnt, 0.09 * kNominal) << "one cut halves at most what arrives";
  estimate_.set_part(0.05 * kNominal);
  EXPECT_EQ(estimate_.rate(), 0.05 * kNominal);
  estimate_.set_part(kNominal);
  EXPECT_EQ(estimate_.rate(), learnt);
}

TEST_F(CcPaceLinkEstimate, QueueWhileThePartIsFilledDoesNotReduceTheEstimate) {
  estimate_.set_part(0.25 * kNominal);
  arrive(0.25, kQueue, Duration::from_ms(50));
  EXPECT_EQ(estimate_.rate(), 0.25 * kNominal);
  estimate_.set_part(kNominal);
  EXPECT_EQ(estimate_.rate(), kNominal);
}

TEST_F(CcPaceLinkEstimate, LongPauseRestoresTheNominalRate) {
  arrive(0.2, kQueue, Duration::from_ms(20));
  const double learnt = estimate_.rate();
  now_ = now_ + Duration::from_ms(5);
  arrive(0.2, kQueue, kWindow);
  EXPECT_LE(estimate_.rate(), learnt) << "a short pause forgets nothing";
  now_ = now_ + Duration::from_s(30);
  estimate_.on_packet(now_, kQueue);
  EXPECT_EQ(estimate_.rate(), kNominal);
}

TEST_F(CcPaceLinkEstimate, UnknownDelayIsNoQueue) {
  arrive(0.5, Duration::max(), Duration::from_s(1));
  EXPECT_EQ(estimate_.rate(), kNominal);
  estimate_.set_part(0.9 * kNominal);
  learn(0.5);
  arrive(share(), Duration::max(), kWindow * 4);
  const double learnt = estimate_.rate();
  arrive(learnt / kNominal, Duration::max(), Duration::from_s(1));
  EXPECT_GE(estimate_.rate(), learnt);
}

TEST_F(CcPaceLinkEstimate, EstimateGrowsWhereDelaysAreUnknown) {
  CoveredEstimate estimate(slow_link(0.1 * kNominal));
  estimate.use(now_, 1, Duration::max(), Duration::from_ms(100));
  EXPECT_EQ(estimate.rate(), kNominal);
}

// A queue behind senders that are the limit is elsewhere: only a much longer one counts.
TEST_F(CcPaceLinkEstimate, SendersThatAreTheLimitDelayTheCut) {
  estimate_.link().set_use(0.5 * kNominal, 1);
  arrive(0.5, kQueue, Duration::from_ms(20));
  EXPECT_EQ(estimate_.rate(), kNominal);
  arrive(0.5, kQueue * 3, Duration::from_ms(20));
  EXPECT_LT(share(), 0.52);
}

TEST_F(CcPaceLinkEstimate, SendersThatCanUseTheLinkDoNotDelayTheCut) {
  estimate_.link().set_use(0.88 * kNominal, 1);
  arrive(0.5, kQueue, Duration::from_ms(20));
  EXPECT_LT(share(), 0.52);
}

TEST_F(CcPaceLinkEstimate, OnArrivalReportsEveryChangeOfTheRate) {
  double known = estimate_.rate();
  double least = known;
  for (int i = 0; i < 2000; ++i) {
    now_ = now_ + Duration::from_us(67);  // 0.5 of the nominal rate
    const bool changed = estimate_.on_packet(now_, i < 1000 ? kQueue : Duration());
    EXPECT_TRUE(changed || estimate_.rate() == known);
    known = estimate_.rate();
    least = std::min(least, known);
  }
  EXPECT_LT(least, kNominal / 2);
  EXPECT_GT(known, least);
}

// --- a link with a queue ---

// Sends at the estimate over a link of the rate `link`, behind a queue `standing` of others.
class Link {
 public:
  explicit Link(double first = 0) : estimate_(slow_link(first)) {}

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

  double rate() const { return estimate_.rate(); }
  // A packet arrives after this pause.
  void pause(Duration time) { estimate_.on_packet(now_ + time, Duration()); }
  // Each take_ function covers the time since its last call.
  double take_least() { return std::exchange(least_, rate()); }
  Duration take_longest() { return std::exchange(longest_, Duration()); }
  double take_use() {
    const double span = (now_ - asked_).seconds();
    asked_ = now_;
    return static_cast<double>(std::exchange(arrived_, 0)) * kWirePacket * 8 / span / link;
  }

  double link = kNominal;
  Duration standing;  // delay of the queue that others keep

 private:
  struct Flying {
    Instant arrival;
    Duration late;
  };

  void send() {
    next_ = now_ + estimate_.time_at(rate());
    const Duration queue = std::max(free_ - now_, Duration());
    free_ = now_ + queue + estimate_.time_at(link);
    longest_ = std::max(longest_, queue);
    flying_.push_back({now_ + kTrip + queue + standing, queue + standing});
  }
  void arrive() {
    estimate_.on_packet(now_, flying_.front().late);
    flying_.pop_front();
    ++arrived_;
    least_ = std::min(least_, rate());
  }

  CoveredEstimate estimate_;
  Instant now_ = Instant::from_ns(1'000'000'000);
  Instant next_ = now_;
  Instant free_ = now_;
  std::deque<Flying> flying_;
  double least_ = 1e18;
  Duration longest_;
  Instant asked_ = now_;
  int arrived_ = 0;
};

TEST(CcPaceLinkEstimateLink, EstimateFindsTheLinkRateAndKeepsTheQueueShort) {
  for (const double given : {0.8, 0.5, 0.1}) {
    Link link;
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

TEST(CcPaceLinkEstimateLink, EstimateGrowsWhenTheLinkDoes) {
  Link link;
  link.link = 0.2 * kNominal;
  link.run(Duration::from_ms(200));
  ASSERT_LT(link.rate(), 0.25 * kNominal);
  link.link = kNominal;
  link.run(Duration::from_ms(200));
  EXPECT_GT(link.rate(), 0.95 * kNominal);
}

// The queue of a stop does not reduce the estimate once it has drained.
TEST(CcPaceLinkEstimateLink, LinkThatStopsRepeatedlyIsUsed) {
  Link link;
  link.link = 0.5 * kNominal;
  for (int i = 0; i < 150; ++i) {
    if (i == 50) link.take_use();
    link.stop_for(Duration::from_ms(10));
    link.run(Duration::from_ms(20));
  }
  EXPECT_GE(link.take_use(), 0.3) << "of 0.5";
}

TEST(CcPaceLinkEstimateLink, EstimateGrowsFromTheFirstRateWithoutAQueue) {
  Link link(0.02 * kNominal);
  EXPECT_EQ(link.rate(), 0.02 * kNominal);
  double before = link.rate();
  for (int i = 0; i < 200; ++i) {
    link.run(kWindow);
    EXPECT_GE(link.rate(), before);
    EXPECT_LE(link.rate(), 2.3 * before) << "at most as fast as TCP's slow start";
    before = link.rate();
  }
  EXPECT_EQ(link.rate(), kNominal);
}

TEST(CcPaceLinkEstimateLink, FastGrowthEndsWithTheFirstQueue) {
  Link link(0.02 * kNominal);
  link.link = 0.3 * kNominal;
  link.run(Duration::from_ms(200));
  EXPECT_GE(link.rate(), 0.7 * link.link);
  EXPECT_LE(link.rate(), 1.15 * link.link);
}

TEST(CcPaceLinkEstimateLink, LongPauseKeepsTheLearntRateOfALinkOfUnknownRate) {
  Link link(0.02 * kNominal);
  link.link = 0.3 * kNominal;
  link.run(Duration::from_ms(200));
  link.pause(Duration::from_s(99));
  EXPECT_GE(link.rate(), 0.6 * link.link);
  EXPECT_LE(link.rate(), 1.15 * link.link);
}

TEST(CcPaceLinkEstimateLink, ShareIsKeptAgainstAGreedyNeighbor) {
  Link link;
  link.link = 0.6 * kNominal;
  link.standing = Duration::from_ms(3);
  link.run(Duration::from_ms(20));
  link.take_least();
  link.run(Duration::from_ms(60));
  EXPECT_LT(link.take_least(), 0.4 * kNominal) << "the estimate yields first";
  link.run(Duration::from_ms(300));
  EXPECT_GE(link.take_least(), 0.4 * kNominal) << "the estimate then keeps its share";
}

TEST(CcPaceLinkEstimateLink, NeighborIsForgottenWhenItLeaves) {
  Link link;
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
}  // namespace pacecar::link_estimate_test
