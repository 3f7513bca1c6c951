#include <gtest/gtest.h>

#include "cc/core_rate.h"

namespace pacecar {
namespace {

constexpr Duration kRoundTrip = Duration::from_us(10);
constexpr Duration kLook = Duration::from_us(15);

class CcCoreRate : public ::testing::Test {
 protected:
  CcCoreRate() { rate_.on_counts(now_, counts_); }
  // An interval in which these came in.
  double look(const ArrivalCounts& more) {
    counts_.packets += more.packets;
    counts_.marked += more.marked;
    counts_.trimmed += more.trimmed;
    counts_.trimmed_in_core += more.trimmed_in_core;
    now_ = now_ + kLook;
    rate_.on_counts(now_, counts_);
    return rate_.rate();
  }

  CoreRate rate_{kRoundTrip, 4};
  ArrivalCounts counts_;
  Instant now_ = Instant::from_ns(1'000'000);
};

TEST_F(CcCoreRate, IsWholeWithoutTrouble) {
  EXPECT_EQ(rate_.rate(), 1);
  EXPECT_EQ(look({.packets = 100}), 1);
  EXPECT_EQ(look({.packets = 100, .marked = 30}), 1) << "so many are none too many";
  EXPECT_EQ(look({.packets = 80, .trimmed = 20}), 1)
      << "of the last hop, which credit itself fills";
}

TEST_F(CcCoreRate, FallsByTheShareThatTheCoreTrimmed) {
  EXPECT_DOUBLE_EQ(look({.packets = 75, .trimmed = 25, .trimmed_in_core = 25}), 0.75);
  EXPECT_DOUBLE_EQ(look({.packets = 50, .trimmed = 50, .trimmed_in_core = 10}), 0.65);
}

TEST_F(CcCoreRate, OnePacketSaysAsMuchAsMany) {
  EXPECT_DOUBLE_EQ(look({.packets = 9, .trimmed = 1, .trimmed_in_core = 1}), 0.9);
  EXPECT_DOUBLE_EQ(look({.packets = 1, .marked = 1}), 0.9 * (1 - (0.5 - 0.3) * 0.5));
}

TEST_F(CcCoreRate, FallsWithTheAverageShareOfMarks) {
  EXPECT_DOUBLE_EQ(look({.packets = 100, .marked = 100}), 1 - (0.5 - 0.3) * 0.5);
  EXPECT_DOUBLE_EQ(look({.packets = 100, .marked = 100}), 0.9 * (1 - (0.75 - 0.3) * 0.5));
}

TEST_F(CcCoreRate, KeepsMostOfAnEvenPart) {
  for (int i = 0; i < 9; ++i) look({.trimmed = 10, .trimmed_in_core = 10});
  EXPECT_DOUBLE_EQ(rate_.rate(), 0.9 / 4);
}

TEST_F(CcCoreRate, GrowsFasterAndFasterUnlessThereAreMarks) {
  look({.packets = 50, .trimmed = 50, .trimmed_in_core = 50});
  EXPECT_DOUBLE_EQ(look({.packets = 100}), 0.51);
  EXPECT_DOUBLE_EQ(look({.packets = 100}), 0.53);
  EXPECT_DOUBLE_EQ(look({.packets = 100, .marked = 1}), 0.54);
  EXPECT_DOUBLE_EQ(look({.packets = 100}), 0.62);
}

TEST_F(CcCoreRate, LooksOnceInOneAndAHalfRoundTrips) {
  counts_.trimmed = counts_.trimmed_in_core = 10;
  rate_.on_counts(now_ + kLook - Duration::from_ns(1), counts_);
  EXPECT_EQ(rate_.rate(), 1);
}

TEST_F(CcCoreRate, IsWholeAgainAfterARest) {
  look({.trimmed = 10, .trimmed_in_core = 10});
  now_ = now_ + Duration::from_s(1);
  EXPECT_EQ(look({}), 1);
  EXPECT_DOUBLE_EQ(look({.packets = 90, .trimmed = 10, .trimmed_in_core = 10}), 0.9)
      << "and looks again";
}

}  // namespace
}  // namespace pacecar
