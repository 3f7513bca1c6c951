// Whose losses they are (PolicerWatch): of a link that drops what exceeds a rate, or of a cable.
#include <gtest/gtest.h>

#include <algorithm>

#include "cc/pace/policer_watch.h"

namespace pacecar {
namespace {

constexpr double kTold = 1e9;
constexpr Duration kWindow = Duration::from_ms(1);
constexpr int kExperiment = 16;  // windows of cuts after which the watch has made up its mind
constexpr int kLong = 2000;      // windows

struct Means {
  double lost = 0;  // of what was sent
  double used = 0;  // of what was told
};

// A sender with a budget that grows again some time after a cut.
class Sender {
 public:
  Sender() { watch_.begin(now_); }

  Means send(int windows) {
    Means means;
    for (int i = 0; i < windows; ++i) {
      now_ = now_ + kWindow;
      const double sent = std::min(offered, budget_);
      const double arriving = std::min(sent * (1 - cable), policed);
      const double lost = sent - arriving;
      means.lost += lost / sent / windows;
      means.used += budget_ / kTold / windows;
      watch_.on_bytes(bytes(arriving));
      watch_.on_loss(bytes(lost));
      if (watch_.look(now_, arriving)) {
        budget_ = watch_.judge(now_, arriving, budget_, budget_);
        next_growth_ = now_ + kWindow * kExperiment;
      } else if (now_ >= next_growth_) {
        budget_ = std::min(budget_ * kGrowth, kTold);
      }
    }
    return means;
  }

  double budget() const { return budget_; }

  double offered = kTold;
  double policed = kTold;
  double cable = 0;  // the part of all packets that it loses

 private:
  static constexpr double kGrowth = 1.02;
  static Bytes bytes(double rate) { return static_cast<Bytes>(rate / 8 * kWindow.seconds()); }

  PolicerWatch watch_{kWindow};
  Instant now_ = Instant::from_ns(1'000'000'000);
  Instant next_growth_;
  double budget_ = kTold;
};

TEST(CcPacePolicer, TheBudgetSettlesBelowIt) {
  Sender sender;
  sender.policed = 0.4 * kTold;
  sender.send(100);
  const Means means = sender.send(kLong);
  EXPECT_LT(means.lost, 0.01);
  EXPECT_GT(means.used, 0.36);
}

TEST(CcPacePolicer, WhatACableLosesIsNoReasonToSlowDown) {
  Sender sender;
  sender.cable = 0.1;
  sender.send(kExperiment + 8);
  EXPECT_EQ(sender.budget(), kTold) << "what was taken is given back";
  EXPECT_GT(sender.send(kLong).used, 0.95);
  sender.cable = 0.03;
  sender.send(kLong);
  EXPECT_NEAR(sender.send(kLong).used, 1, 1e-9) << "it is no policer that is known";
  Sender good;
  good.cable = 0.03;
  EXPECT_NEAR(good.send(kLong).used, 1, 1e-9) << "not even for a while";
}

// It has no slower link than one who uses it.
TEST(CcPacePolicer, WhoUsesAPartOfItsBudgetLosesTheSamePartOfIt) {
  Sender sender;
  sender.offered = 0.3 * kTold;
  sender.cable = 0.1;
  sender.send(4);
  EXPECT_LT(sender.budget(), 0.95 * kTold);
  EXPECT_GT(sender.budget(), 0.7 * kTold);
}

// Losses that are found late were those of a larger budget.
TEST(CcPacePolicer, WhatArrivesGetsThrough) {
  PolicerWatch watch(kWindow);
  Instant now = Instant::from_ns(1'000'000'000);
  watch.begin(now);
  for (int i = 0; i < 3; ++i) {
    now = now + kWindow;
    watch.on_bytes(75'000);
    watch.on_loss(50'000);
    ASSERT_EQ(watch.look(now, 0.6 * kTold), i == 2);
  }
  EXPECT_GT(watch.judge(now, 0.6 * kTold, 0.6 * kTold, 0.6 * kTold), 0.55 * kTold);
  EXPECT_LT(watch.judge(now, 0.6 * kTold, 0.6 * kTold, 0.5 * kTold), 0.5 * kTold)
      << "but no budget grows by losses";
}

TEST(CcPacePolicer, IsQuietWhenNothingWasLostLately) {
  PolicerWatch watch(kWindow);
  EXPECT_TRUE(watch.quiet());
  watch.on_loss(4096);
  EXPECT_FALSE(watch.quiet());
  watch.look(Instant::from_ns(1'000'000'000), kTold);
  EXPECT_FALSE(watch.quiet()) << "the window was lossy";
  watch.look(Instant::from_ns(2'000'000'000), kTold);
  EXPECT_TRUE(watch.quiet());
}

// The cuts seem to help as little as they would with a cable.
TEST(CcPacePolicer, OneThatLetsThroughLessWhileItIsLookedForIsFound) {
  for (int before = 1; before < 2 * kExperiment; ++before) {
    Sender sender;
    sender.policed = 0.8 * kTold;
    sender.send(before);
    sender.policed = 0.5 * kTold;
    sender.send(100);
    EXPECT_LT(sender.send(kLong).lost, 0.05) << before;
  }
}

TEST(CcPacePolicer, OneBehindWhatWasALossyCableIsFound) {
  Sender sender;
  sender.cable = 0.4;
  sender.send(100);
  sender.cable = 0;
  sender.policed = 0.4 * kTold;
  sender.send(kLong);
  EXPECT_LT(sender.send(kLong).lost, 0.05);
}

}  // namespace
}  // namespace pacecar
