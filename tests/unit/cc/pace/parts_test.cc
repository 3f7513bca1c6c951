// The small parts of `pace`: phases, fan-in, slots, water filling.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "cc/pace/fan_in.h"
#include "cc/pace/phase.h"
#include "cc/pace/slot_map.h"
#include "cc/pace/water_fill.h"

namespace pacecar::parts_test {
namespace {

constexpr Duration kRoundTrip = Duration::from_us(8);
constexpr Bytes kMtu = 4096;
constexpr Bytes kOverhead = 64;

// --- phase ---

TEST(CcPacePhase, FirstSlotsAreSpreadAboutEvenly) {
  for (uint32_t slots = 2; slots <= 300; ++slots) {
    std::vector<double> at;
    for (uint32_t slot = 0; slot < slots; ++slot) at.push_back(pace_fraction(slot));
    std::ranges::sort(at);
    ASSERT_GE(at.front(), 0);
    ASSERT_LT(at.back(), 1);
    at.push_back(at.front() + 1);
    const double unit = 1.0 / std::bit_ceil(slots);
    for (size_t i = 1; i < at.size(); ++i) {
      ASSERT_GE(at[i] - at[i - 1], unit) << slots;
      ASSERT_LE(at[i] - at[i - 1], 2 * unit) << slots;
    }
  }
}

TEST(CcPacePhase, BurstIsAQuarterOfARoundTripInWholePackets) {
  FlowEnvironment environment{.mtu = kMtu, .burst_bytes = 1 << 20, .base_rtt = kRoundTrip};
  EXPECT_EQ(pace_burst(Rate::from_gbps(400), environment), 24 * kMtu);
  environment.burst_bytes = 8 * kMtu;
  EXPECT_EQ(pace_burst(Rate::from_gbps(400), environment), 8 * kMtu);
  EXPECT_EQ(pace_burst(Rate::from_gbps(1), environment), kMtu) << "at least one packet";
  EXPECT_EQ(pace_burst(Rate(), environment), kMtu);
  environment.burst_bytes = 0;
  EXPECT_EQ(pace_burst(Rate::from_gbps(400), environment), kMtu);
}

TEST(CcPacePhase, GapIsTheTimeOfABurstOnTheWire) {
  EXPECT_DOUBLE_EQ(pace_gap_ns(Rate::from_gbps(8), 3 * kMtu, kMtu, kOverhead), 3 * 4160.0);
  EXPECT_DOUBLE_EQ(pace_gap_ns(Rate::from_gbps(8), 1000, kMtu, kOverhead), 1064.0);
}

TEST(CcPacePhase, EachPacketHasItsOverhead) {
  EXPECT_EQ(on_wire(0, kMtu, kOverhead), 0U);
  EXPECT_EQ(on_wire(1, kMtu, kOverhead), 1 + kOverhead);
  EXPECT_EQ(on_wire(kMtu, kMtu, kOverhead), kMtu + kOverhead);
  EXPECT_EQ(on_wire(kMtu + 1, kMtu, kOverhead), kMtu + 1 + 2 * kOverhead);
}

TEST(CcPacePhase, EachSlotHasItsOwnFractionOfTheGap) {
  EXPECT_EQ(pace_fraction(0), 0);
  EXPECT_EQ(pace_fraction(1), 0.5);
  EXPECT_EQ(pace_fraction(1 << 15), 1.0 / 65'536) << "the last bit of the slot number";
}

TEST(CcPacePhase, PhasesAreKeptUpToAJitterOfOneBurst) {
  FlowEnvironment environment{.line_rate = Rate::from_gbps(8), .burst_bytes = 4000};
  environment.jitter = Duration::from_us(4);
  EXPECT_TRUE(keeps_phases(environment));
  environment.jitter = environment.jitter + Duration::from_ns(1);
  EXPECT_FALSE(keeps_phases(environment));
}

TEST(CcPacePhase, ModuloIsNeverNegative) {
  EXPECT_DOUBLE_EQ(modulo(25, 10), 5);
  EXPECT_DOUBLE_EQ(modulo(-3, 10), 7);
  EXPECT_DOUBLE_EQ(modulo(-30, 10), 0);
  for (const double ns : {-9e15, -12345.6, 0.0, 9e15}) {  // a clock value after 100 days
    EXPECT_GE(modulo(ns, 83.2), 0);
    EXPECT_LT(modulo(ns, 83.2), 83.2);
  }
}

// --- fan-in ---

class CcPaceFanIn : public ::testing::Test {
 protected:
  // `flows` flows wake up within a round trip and stay active.
  void episode(uint32_t flows) {
    for (uint32_t i = 1; i <= flows; ++i) {
      fan_in_.on_wake(now_, i);
      now_ = now_ + kRoundTrip / (flows + 1);
    }
    now_ = now_ + kRoundTrip * 3;
  }

  static constexpr Duration kWord = Duration::from_ns(40);
  FanIn fan_in_{kRoundTrip, kWord};
  Instant now_ = Instant::from_ns(1'000'000);
};

TEST_F(CcPaceFanIn, AllIdleFlowsAreExpectedAtFirst) {
  EXPECT_EQ(fan_in_.expected(0), 1);
  EXPECT_EQ(fan_in_.expected(1), 1);
  EXPECT_EQ(fan_in_.expected(1000), 1000);
}

TEST_F(CcPaceFanIn, UsualFanInIsExpectedLater) {
  for (int i = 0; i < 12; ++i) episode(8);
  EXPECT_EQ(fan_in_.expected(1000), 8);
  EXPECT_EQ(fan_in_.expected(8), 8);
  for (int i = 0; i < 12; ++i) episode(1);
  EXPECT_EQ(fan_in_.expected(1000), 1);
}

TEST_F(CcPaceFanIn, OneUnusualEpisodeDoesNotChangeTheFanIn) {
  for (const uint32_t usual : {1U, 9U}) {
    for (int i = 0; i < 12; ++i) episode(usual);
    episode(30);
    EXPECT_EQ(fan_in_.expected(1000), usual);
    for (int i = 0; i < 4; ++i) episode(usual);
    episode(1);
    EXPECT_EQ(fan_in_.expected(1000), usual);
  }
}

TEST_F(CcPaceFanIn, FlowsThatWakeOneByOneCountWithTheActiveOnes) {
  for (int i = 0; i < 12; ++i) {
    fan_in_.on_wake(now_, 5);  // four others are active already
    now_ = now_ + kRoundTrip * 2;
  }
  EXPECT_EQ(fan_in_.expected(1000), 5);
}

TEST_F(CcPaceFanIn, FlowsAreGatheredForAPartOfARoundTrip) {
  EXPECT_FALSE(fan_in_.gathering(now_));
  fan_in_.on_wake(now_, 1);
  EXPECT_TRUE(fan_in_.gathering(now_));
  EXPECT_FALSE(fan_in_.gathering(fan_in_.gathered()));
  EXPECT_LT(fan_in_.gathered() - now_, kRoundTrip);
}

// On a slow link the demands of many flows take longer than a part of a round trip.
TEST_F(CcPaceFanIn, MoreFlowsAreGatheredForLonger) {
  for (uint32_t i = 1; i <= 400; ++i) {
    EXPECT_TRUE(i == 1 || fan_in_.gathering(now_)) << i;
    fan_in_.on_wake(now_, i);
    now_ = now_ + kWord;
  }
  EXPECT_GT(fan_in_.gathered() - now_, Duration());
  now_ = now_ + kRoundTrip * 10;
  EXPECT_FALSE(fan_in_.gathering(now_));
  fan_in_.on_wake(now_, 1);
  EXPECT_EQ(fan_in_.expected(1000), 400) << "one episode, although longer than a round trip";
}

// --- slots, levels: examples; the property tests have the rest ---

TEST(CcPaceSlots, LowestFreeSlotIsTaken) {
  SlotMap slots(130);
  for (uint32_t slot = 0; slot < 130; ++slot) ASSERT_EQ(slots.take_lowest(), slot);
  slots.release(128);
  slots.release(64);
  EXPECT_EQ(slots.take_lowest(), 64U);
  EXPECT_EQ(slots.take_lowest(), 128U);
}

// One member is satisfied just below the level, at every position within a class.
TEST(CcPaceWaterFill, LevelIsAtMostAHundredthTooLowAndNeverTooHigh) {
  for (double limit = 8e9; limit < 17e9; limit *= 1.004) {
    WaterFill fill;
    fill.add(Rate::from_bps(static_cast<uint64_t>(limit)), 1);
    fill.add(Rate::from_gbps(400), 1);
    for (double level = limit; level < 1.05 * limit; level *= 1.003) {
      const double found = fill.level(limit + level);
      ASSERT_LE(found, level * 1.000001) << limit;
      ASSERT_GE(found, level * 0.989) << limit;
    }
  }
}

TEST(CcPaceWaterFill, SlowMembersShareOneClass) {
  WaterFill fill;
  for (const uint64_t kbps : {100, 900, 10'000'000}) fill.add(Rate::from_bps(kbps * 1000), 1);
  EXPECT_NEAR(fill.level(1.2e6), 0.4e6, 1e3) << "no member counts as satisfied";
  EXPECT_NEAR(fill.level(4e6), 3e6, 1e3) << "both slow members count as satisfied";
}

TEST(CcPaceWaterFill, LevelOfAFewMembers) {
  WaterFill fill;
  EXPECT_EQ(fill.level(1e9), WaterFill::kNoLevel);
  fill.add(Rate::from_gbps(10), 1);
  fill.add(Rate::from_gbps(100), 1);
  fill.add(Rate::from_gbps(100), 2);
  EXPECT_EQ(fill.limits(), 210e9);
  EXPECT_EQ(fill.weights(), 4U);
  EXPECT_EQ(fill.level(210e9), WaterFill::kNoLevel);
  EXPECT_NEAR(fill.level(100e9), 30e9, 0.011 * 30e9) << "10 + 30 + 60";
  EXPECT_NEAR(fill.level(20e9), 5e9, 0.011 * 5e9) << "5 + 5 + 10";
  fill.remove(Rate::from_gbps(10), 1);
  EXPECT_NEAR(fill.level(90e9), 30e9, 0.011 * 30e9);
  fill.remove(Rate::from_gbps(100), 1);
  fill.remove(Rate::from_gbps(100), 2);
  EXPECT_EQ(fill.weights(), 0U);
  EXPECT_EQ(fill.level(0), WaterFill::kNoLevel);
}

}  // namespace
}  // namespace pacecar::parts_test
