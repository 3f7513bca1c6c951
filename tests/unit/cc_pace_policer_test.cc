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

// A sender that uses all of its budget, which grows again some time after a cut.
class Sender {
 public:
  Sender() { watch_.begin(now_); }

  Means send(int windows) {
    Means means;
    for (int i = 0; i < windows; ++i) {
      now_ = now_ + kWindow;
      const double arriving = std::min(budget_ * (1 - cable), policed);
      const double lost = budget_ - arriving;
      means.lost += lost / budget_ / windows;
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
  EXPECT_LT(means.lost, 0.05);
  EXPECT_GT(means.used, 0.36);
}

TEST(CcPacePolicer, WhatACableLosesIsNoReasonToSlowDown) {
  Sender sender;
  sender.cable = 0.1;
  sender.send(100);
  EXPECT_GT(sender.send(kLong).used, 0.95);
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
