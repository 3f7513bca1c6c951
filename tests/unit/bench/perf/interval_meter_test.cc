#include "bench/perf/interval_meter.h"

#include <gtest/gtest.h>

#include <numeric>

namespace pacecar::perf::interval_meter_test {
namespace {

Duration ms(int64_t count) { return Duration::from_ms(count); }

uint64_t total_of(const IntervalMeter& meter) {
  return std::accumulate(meter.intervals().begin(), meter.intervals().end(), uint64_t{0},
                         [](uint64_t sum, const Interval& i) { return sum + i.messages; });
}

TEST(IntervalMeter, IntervalEndsAtTheFirstCountAfterItsLength) {
  IntervalMeter meter(ms(10), 1);
  EXPECT_FALSE(meter.count(ms(9), 90));
  EXPECT_TRUE(meter.count(ms(12), 120));
  EXPECT_EQ(meter.last().start, Duration());
  EXPECT_EQ(meter.last().length, ms(12));
  EXPECT_EQ(meter.last().messages, 120U);
  EXPECT_FALSE(meter.count(ms(21), 200));
  EXPECT_TRUE(meter.count(ms(22), 220));
  EXPECT_EQ(meter.last().start, ms(12));
  EXPECT_DOUBLE_EQ(meter.peak(), 10'000);
}

TEST(IntervalMeter, IntervalWaitsForEnoughMessages) {
  IntervalMeter meter(ms(10), 16);
  EXPECT_FALSE(meter.count(ms(15), 8));
  EXPECT_TRUE(meter.count(ms(20), 16));
  EXPECT_DOUBLE_EQ(meter.peak(), 800);
}

TEST(IntervalMeter, PunctualIntervalsEndWithoutMessagesAndAreNoPeak) {
  IntervalMeter meter(ms(10), 16, true);
  EXPECT_TRUE(meter.count(ms(10), 8));
  EXPECT_TRUE(meter.count(ms(20), 8));
  EXPECT_EQ(meter.last().messages, 0U);
  EXPECT_DOUBLE_EQ(meter.peak(), 0);
  EXPECT_TRUE(meter.count(ms(30), 24));
  EXPECT_DOUBLE_EQ(meter.peak(), 1600);
}

TEST(IntervalMeter, LastIntervalCompletesTheTotalButIsNoPeak) {
  IntervalMeter meter(ms(10), 1);
  meter.count(ms(10), 10);
  meter.finish(ms(11), 1000);
  EXPECT_EQ(total_of(meter), 1000U);
  EXPECT_DOUBLE_EQ(meter.peak(), 1000);
}

TEST(IntervalMeter, FinishAddsNothingWithoutTime) {
  IntervalMeter meter(ms(10), 1);
  meter.count(ms(10), 10);
  meter.finish(ms(10), 10);
  EXPECT_EQ(meter.intervals().size(), 1U);
}

TEST(IntervalMeter, IntervalsOfLongRunsAreJoinedWithoutLosingMessagesTimeOrPeak) {
  IntervalMeter meter(ms(1), 1);
  uint64_t total = 0;
  int64_t now = 0;
  for (int i = 0; i < 10'000; ++i) {
    ++now;
    total += i == 100 ? 50 : 1;
    meter.count(ms(now), total);
  }
  meter.finish(ms(now), total);
  EXPECT_LE(meter.intervals().size(), IntervalMeter::kMaxIntervals + 1);
  EXPECT_EQ(total_of(meter), total);
  Duration end;
  for (const Interval& interval : meter.intervals()) {
    EXPECT_EQ(interval.start, end);
    end = interval.start + interval.length;
  }
  EXPECT_EQ(end, ms(now));
  EXPECT_DOUBLE_EQ(meter.peak(), 50'000);
}

}  // namespace
}  // namespace pacecar::perf::interval_meter_test
