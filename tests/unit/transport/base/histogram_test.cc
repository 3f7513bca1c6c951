#include "transport/base/histogram.h"

#include <gtest/gtest.h>

#include <limits>

namespace pacecar::histogram_test {
namespace {

constexpr uint64_t kLargest = std::numeric_limits<uint64_t>::max();

TEST(Histogram, EmptyReportsZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.min(), 0U);
  EXPECT_EQ(histogram.max(), 0U);
  EXPECT_EQ(histogram.mean(), 0);
  EXPECT_EQ(histogram.stdev(), 0);
  EXPECT_EQ(histogram.value_at_percentile(99), 0U);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  for (uint64_t value = 1; value <= 200; ++value) histogram.record(value);
  EXPECT_EQ(histogram.value_at_percentile(0), 1U);
  EXPECT_EQ(histogram.value_at_percentile(0.5), 1U);
  EXPECT_EQ(histogram.value_at_percentile(50), 100U);
  EXPECT_EQ(histogram.value_at_percentile(50.1), 101U);
  EXPECT_EQ(histogram.value_at_percentile(99), 198U);
  EXPECT_EQ(histogram.value_at_percentile(100), 200U);
}

// 0.07 * 10,000 / 100 is a little more than 7 in binary.
TEST(Histogram, DecimalPercentilesSelectTheExactRank) {
  Histogram histogram;
  for (int i = 0; i < 7; ++i) histogram.record(1);
  for (int i = 0; i < 9'993; ++i) histogram.record(200);
  EXPECT_EQ(histogram.value_at_percentile(0.07), 1U);
  EXPECT_EQ(histogram.value_at_percentile(0.0701), 200U);
}

TEST(Histogram, WholeRangeIsRecorded) {
  Histogram histogram;
  histogram.record(0);
  histogram.record(kLargest);
  EXPECT_EQ(histogram.min(), 0U);
  EXPECT_EQ(histogram.max(), kLargest);
  EXPECT_EQ(histogram.value_at_percentile(50), 0U);
  EXPECT_EQ(histogram.value_at_percentile(51), kLargest);
}

TEST(Histogram, SmallDeviationOfLargeValuesIsExact) {
  Histogram histogram;
  constexpr uint64_t kBase = 1'000'000'000'000;
  for (int i = 0; i < 1000; ++i) {
    histogram.record(kBase - 3);
    histogram.record(kBase + 3);
  }
  EXPECT_DOUBLE_EQ(histogram.mean(), kBase);
  EXPECT_NEAR(histogram.stdev(), 3, 1e-9);
}

}  // namespace
}  // namespace pacecar::histogram_test
