// RttEstimator: when silence means something, from the round trips seen.
#include <gtest/gtest.h>

#include "transport/softnic/rtt_estimator.h"

namespace pacecar::rtt_test {
namespace {

constexpr LossRecovery kBounds{.initial_timeout = Duration::from_ms(5),
                               .min_probe = Duration::from_us(20),
                               .min_timeout = Duration::from_us(200),
                               .max_timeout = Duration::from_ms(200)};

RttEstimator after(std::initializer_list<int64_t> round_trips_us, int times = 100) {
  RttEstimator rtt(kBounds);
  for (int i = 0; i < times; ++i) {
    for (const int64_t us : round_trips_us) rtt.add(Duration::from_us(us));
  }
  return rtt;
}

TEST(SoftNicRtt, KnowsNothingBeforeTheFirstSample) {
  const RttEstimator rtt(kBounds);
  EXPECT_EQ(rtt.smoothed(), Duration());
  EXPECT_EQ(rtt.probe_timeout(), kBounds.initial_timeout);
  EXPECT_EQ(rtt.timeout(), kBounds.initial_timeout);
}

TEST(SoftNicRtt, SteadyRoundTripsAreProbedAfterTwo) {
  const RttEstimator rtt = after({100});
  EXPECT_EQ(rtt.smoothed(), Duration::from_us(100));
  EXPECT_NEAR(rtt.probe_timeout().us(), 200, 5);
}

// RFC 6298, section 2: the first sample, then 1/8 and 1/4 of each distance.
TEST(SoftNicRtt, FollowsItsSamplesAsTheRfcHasIt) {
  RttEstimator rtt(kBounds);
  rtt.add(Duration::from_us(800));
  EXPECT_EQ(rtt.smoothed(), Duration::from_us(800));
  EXPECT_EQ(rtt.timeout(), Duration::from_us(800 + 4 * 400));
  EXPECT_EQ(rtt.probe_timeout(), Duration::from_us(800 + 4 * 400));
  rtt.add(Duration::from_us(1600));
  EXPECT_EQ(rtt.smoothed(), Duration::from_us(900));
  EXPECT_EQ(rtt.timeout(), Duration::from_us(900 + 4 * 500));
  rtt.add(Duration::from_us(100));  // below it, at the same distance
  EXPECT_EQ(rtt.smoothed(), Duration::from_us(800));
  EXPECT_EQ(rtt.timeout(), Duration::from_us(800 + 4 * 575));
}

// RFC 8985, section 6.2.
TEST(SoftNicRtt, ReorderingIsAQuarterOfARoundTripOrWhatIsSet) {
  EXPECT_EQ(RttEstimator(kBounds).reordering(), Duration::from_us(5));
  EXPECT_EQ(after({16}).reordering(), Duration::from_us(5));
  EXPECT_EQ(after({400}).reordering(), Duration::from_us(100));
  LossRecovery bounds = kBounds;
  bounds.reordering = Duration::from_us(1);
  RttEstimator told(bounds);
  told.add(Duration::from_us(400));
  EXPECT_EQ(told.reordering(), Duration::from_us(1));
}

// A host that is late now and then has lost nothing.
TEST(SoftNicRtt, VariationPutsAProbeOff) {
  const RttEstimator rtt = after({50, 50, 50, 850});
  EXPECT_GT(rtt.probe_timeout(), rtt.smoothed() * 2);
  EXPECT_GT(rtt.probe_timeout(), Duration::from_us(850)) << "the latest of them is usual";
  EXPECT_GT(after({50, 50, 50, 1650}).probe_timeout(), rtt.probe_timeout());
  EXPECT_GT(rtt.probe_timeout(), after({275}).probe_timeout()) << "the mean is the same";
}

TEST(SoftNicRtt, CalmBringsItBack) {
  RttEstimator rtt = after({50, 850});
  for (int i = 0; i < 100; ++i) rtt.add(Duration::from_us(50));
  EXPECT_LT(rtt.probe_timeout(), Duration::from_us(120));
}

TEST(SoftNicRtt, AProbeComesNeverLaterThanTheTimeout) {
  for (const int64_t us : {1, 10, 100, 1000, 10'000, 150'000, 1'000'000}) {
    for (const RttEstimator& rtt : {after({us}, 1), after({us}), after({us, us * 10})}) {
      EXPECT_LE(rtt.probe_timeout(), rtt.timeout()) << us;
      EXPECT_GE(rtt.probe_timeout(), kBounds.min_probe) << us;
      EXPECT_LE(rtt.timeout(), kBounds.max_timeout) << us;
    }
  }
}

}  // namespace
}  // namespace pacecar::rtt_test
