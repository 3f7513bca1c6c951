// The rules by which a LinkEstimate forgets, grows and yields: pauses, weights, queues on a path,
// neighbours, even parts.
#include <gtest/gtest.h>

#include <algorithm>

#include "cc/host_link.h"
#include "tests/unit/cc/pace/covered_estimate.h"

namespace pacecar::link_estimate_rules_test {
namespace {

using namespace test;

class CcPaceEstimateRules : public ::testing::Test {
 protected:
  // Packets at a share of the nominal rate, all with this delay.
  void arrive(CoveredEstimate& estimate, double share, Duration late, Duration span,
              uint32_t flow = 0) {
    estimate.arrive(now_, kNominal * share, late, span, flow);
  }
  // The share of the nominal rate after a pause.
  double after_pause(CoveredEstimate& estimate, Duration pause) {
    now_ = now_ + pause;
    estimate.on_packet(now_, Duration());
    return estimate.rate() / kNominal;
  }

  Instant now_ = Instant::from_ns(1'000'000'000);
};

// Delays vary more on long paths.
TEST_F(CcPaceEstimateRules, ToleratedDelayFollowsTheMeasuredRoundTrip) {
  CoveredEstimate estimate;
  estimate.link().set_round_trip(Duration::from_ms(10));
  arrive(estimate, 0.5, kQueue, Duration::from_ms(20));
  EXPECT_FALSE(estimate.learnt());
  arrive(estimate, 0.5, kQueue * 6, Duration::from_ms(20));
  EXPECT_TRUE(estimate.learnt());
}

// A cut shows after a round trip: earlier arrivals say nothing about it.
TEST_F(CcPaceEstimateRules, NoCutFollowsBeforeTheLastOneShows) {
  for (const bool far : {false, true}) {
    CoveredEstimate estimate;
    if (far) estimate.link().set_round_trip(Duration::from_ms(10));
    while (!estimate.learnt()) arrive(estimate, 0.5, kQueue * 6, Duration::from_us(100));
    const double cut = estimate.rate();
    arrive(estimate, 0.2, kQueue * 6, Duration::from_ms(9));
    EXPECT_EQ(estimate.rate() == cut, far);
  }
}

// With jitter, the host may be the reason for a single late look.
TEST_F(CcPaceEstimateRules, WithoutJitterTheFirstLateLookCuts) {
  const auto cut_after = [this](Duration jitter) {
    FlowEnvironment environment = slow_link();
    environment.jitter = jitter;
    CoveredEstimate estimate(environment);
    arrive(estimate, 0.5, Duration(), kWindow * 4);
    const Instant began = now_;
    while (!estimate.learnt()) arrive(estimate, 0.5, kQueue, Duration::from_us(1));
    return now_ - began;
  };
  EXPECT_LT(cut_after(Duration()) + kWindow / 8, cut_after(Duration::from_us(10)));
}

// --- pauses ---

// A pause is long after 32 windows and the longest measuring time: 67.2 ms.
TEST_F(CcPaceEstimateRules, LongPauseBringsBackTheNominalRate) {
  for (const int64_t pause_ms : {67, 68}) {
    CoveredEstimate estimate;
    arrive(estimate, 0.5, kQueue, Duration::from_ms(20));
    ASSERT_LT(estimate.rate(), 0.6 * kNominal);
    EXPECT_EQ(after_pause(estimate, Duration::from_ms(pause_ms)) == 1, pause_ms == 68);
  }
}

// A packet comes every 17 ms or so. The estimate settles at 0.28 Mb/s, where the delay is
// tolerated: eight packets take 0.96 s.
TEST_F(CcPaceEstimateRules, OnASlowLinkOnlyALongerPauseCounts) {
  for (const int64_t pause_ms : {970, 1010}) {
    CoveredEstimate estimate;
    arrive(estimate, 0.002, Duration::from_ms(30), Duration::from_s(4));
    ASSERT_NEAR(estimate.rate(), 0.00028 * kNominal, 0.00001 * kNominal);
    EXPECT_EQ(after_pause(estimate, Duration::from_ms(pause_ms)) == 1, pause_ms == 1010);
  }
}

TEST_F(CcPaceEstimateRules, PauseBringsBackTheLastRateOfALinkOfUnknownRate) {
  CoveredEstimate estimate(slow_link(0.5 * kNominal));
  EXPECT_EQ(after_pause(estimate, Duration::from_s(30)), 0.5)
      << "the first rate, as nothing is learnt yet";
  while (estimate.rate() == 0.5 * kNominal) arrive(estimate, 0.3, kWindow * 10, kWindow / 4);
  const double draining = estimate.rate() / kNominal;
  const double after = after_pause(estimate, Duration::from_s(30));
  EXPECT_GT(after, 1.6 * draining);
  EXPECT_LT(after, 0.4);
}

// --- weights ---

TEST_F(CcPaceEstimateRules, HigherWeightToleratesALongerQueue) {
  CoveredEstimate estimate;
  estimate.link().set_use(kNominal, 64);
  arrive(estimate, 0.5, kQueue, Duration::from_ms(20));
  EXPECT_EQ(estimate.rate(), kNominal);
  estimate.link().set_use(kNominal, 1);
  arrive(estimate, 0.5, kQueue, Duration::from_ms(20));
  EXPECT_LT(estimate.rate(), 0.52 * kNominal) << "one of 64 such processes tolerates less";
}

// --- a queue on a path ---

// When the flows that met the queue have stopped, the estimate for another flow grows as fast
// as at first.
TEST_F(CcPaceEstimateRules, QueueOfOtherFlowsDoesNotReduceAFlowsRate) {
  for (const uint32_t witness : {0U, 63U}) {
    for (const uint32_t flow : {witness, 1U}) {
      CoveredEstimate estimate;
      arrive(estimate, 0.3, kQueue, kWindow * 20, witness);
      ASSERT_LT(estimate.rate(), 0.4 * kNominal);
      estimate.use(now_, 1, Duration(), kWindow * 12, flow);
      EXPECT_EQ(estimate.rate() > 0.85 * kNominal, flow == 1);
    }
  }
}

// --- neighbors that keep a queue ---

// A neighbor gives way to the rate that we keep; a link that has become slow does not.
TEST_F(CcPaceEstimateRules, SlowLinkIsNotTakenForANeighbor) {
  constexpr Duration kKept = Duration::from_ms(3);
  CoveredEstimate estimate;
  const auto use = [&](double link, Duration span) {
    for (const Instant end = now_ + span; now_ < end;) {
      now_ = now_ + estimate.time_at(std::min(estimate.rate(), link));
      estimate.on_packet(now_, kKept);
    }
  };
  use(0.6 * kNominal, Duration::from_ms(100));
  ASSERT_GE(estimate.rate(), 0.4 * kNominal) << "a neighbor is recognized";
  double least = kNominal;
  for (int i = 0; i < 60; ++i) {
    use(0.1 * kNominal, Duration::from_ms(5));
    least = std::min(least, estimate.rate());
  }
  EXPECT_LT(least, 0.11 * kNominal);
}

// --- even parts ---

// Other processes of the host, which have learnt a higher rate.
class Host final : public HostLink {
 public:
  void claim(Instant, const LinkClaim&) override {}
  bool due(Instant) const override { return false; }
  Instant next_deadline() const override { return Instant::never(); }
  uint32_t place() const override { return 0; }
  Rate part() const override { return line; }
  Rate reach() const override { return line; }
  Rate prospect(uint32_t) const override { return line; }
  double share_of_weights() const override { return 1; }
  Rate fair_part(Rate learnt) override {
    asked += learnt > Rate() ? 1 : 0;
    return learnt > Rate() ? Rate::from_bps(800'000'000) : Rate();
  }
  Rate used_by_others() const override { return {}; }

  Rate line = Rate::from_gbps(1);
  int asked = 0;
};

TEST_F(CcPaceEstimateRules, EstimateMovesAnEighthTowardsTheFairPartPerWindow) {
  Host host;
  FlowEnvironment shared = slow_link();
  shared.host_link = &host;
  CoveredEstimate estimate(shared);
  while (!estimate.learnt()) arrive(estimate, 0.4, kQueue, kWindow / 4);
  arrive(estimate, 0.4, kQueue, kWindow / 4);
  for (int window = 0; window < 12; ++window) {
    const int asked = host.asked;
    const double missing = 0.8 * kNominal - estimate.rate();
    arrive(estimate, estimate.rate() / kNominal, Duration::from_us(200), kWindow);
    EXPECT_NEAR(host.asked, asked + 1, 1) << window;
    EXPECT_LE(0.8 * kNominal - estimate.rate(), missing);
    EXPECT_GT(0.8 * kNominal - estimate.rate(), 0.7 * missing);
  }
  EXPECT_NEAR(host.asked, 11, 4);
}

// It is not learnt from a queue.
TEST_F(CcPaceEstimateRules, FirstRateIsNotPublishedBeforeAQueueIsMet) {
  Host host;
  FlowEnvironment shared = slow_link(0.1 * kNominal);
  shared.host_link = &host;
  CoveredEstimate estimate(shared);
  while (estimate.learnt()) estimate.use(now_, 1, Duration(), kWindow);
  EXPECT_EQ(host.asked, 0);
}

}  // namespace
}  // namespace pacecar::link_estimate_rules_test
