// PolicerWatch: whether a policer or a lossy cable drops the packets.
#include <gtest/gtest.h>

#include <algorithm>

#include "cc/pace/policer_watch.h"

namespace pacecar::policer_test {
namespace {

constexpr double kNominal = 1e9;
constexpr Duration kWindow = Duration::from_ms(1);
constexpr int kExperiment = 16;  // windows of cuts after which the watch decides
constexpr int kLong = 2000;      // windows

struct Means {
  double lost = 0;  // of the sent bytes
  double used = 0;  // mean budget, of the nominal rate
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
      means.used += budget_ / kNominal / windows;
      watch_.on_bytes(bytes(arriving));
      watch_.on_loss(bytes(lost));
      if (watch_.look(now_, arriving)) {
        budget_ = watch_.judge(now_, arriving, budget_, budget_);
        next_growth_ = now_ + kWindow * kExperiment;
      } else if (now_ >= next_growth_) {
        budget_ = std::min(budget_ * kGrowth, kNominal);
      }
    }
    return means;
  }

  double budget() const { return budget_; }

  double offered = kNominal;
  double policed = kNominal;
  double cable = 0;  // share of all packets that the cable loses

 private:
  static constexpr double kGrowth = 1.02;
  static Bytes bytes(double rate) { return static_cast<Bytes>(rate / 8 * kWindow.seconds()); }

  PolicerWatch watch_{kWindow};
  Instant now_ = Instant::from_ns(1'000'000'000);
  Instant next_growth_;
  double budget_ = kNominal;
};

TEST(CcPacePolicer, BudgetSettlesBelowThePolicedRate) {
  Sender sender;
  sender.policed = 0.4 * kNominal;
  sender.send(100);
  const Means means = sender.send(kLong);
  EXPECT_LT(means.lost, 0.01);
  EXPECT_GT(means.used, 0.36);
}

TEST(CcPacePolicer, LossesOfACableDoNotReduceTheBudget) {
  Sender sender;
  sender.cable = 0.1;
  sender.send(kExperiment + 8);
  EXPECT_EQ(sender.budget(), kNominal) << "the cuts are undone";
  EXPECT_GT(sender.send(kLong).used, 0.95);
  sender.cable = 0.03;
  sender.send(kLong);
  EXPECT_NEAR(sender.send(kLong).used, 1, 1e-9)
      << "fewer losses than the known ones do not cut the budget";
  Sender good;
  good.cable = 0.03;
  EXPECT_NEAR(good.send(kLong).used, 1, 1e-9) << "so few losses never cut the budget";
}

// The cut does not depend on how much of the budget is used.
TEST(CcPacePolicer, PartlyUsedBudgetIsCutByTheShareOfLosses) {
  Sender sender;
  sender.offered = 0.3 * kNominal;
  sender.cable = 0.1;
  sender.send(4);
  EXPECT_LT(sender.budget(), 0.95 * kNominal);
  EXPECT_GT(sender.budget(), 0.7 * kNominal);
}

// Losses that are detected late belong to a larger budget.
TEST(CcPacePolicer, CutIsNeverBelowTheArrivingRate) {
  PolicerWatch watch(kWindow);
  Instant now = Instant::from_ns(1'000'000'000);
  watch.begin(now);
  for (int i = 0; i < 3; ++i) {
    now = now + kWindow;
    watch.on_bytes(75'000);
    watch.on_loss(50'000);
    ASSERT_EQ(watch.look(now, 0.6 * kNominal), i == 2);
  }
  EXPECT_GT(watch.judge(now, 0.6 * kNominal, 0.6 * kNominal, 0.6 * kNominal), 0.55 * kNominal);
  EXPECT_LT(watch.judge(now, 0.6 * kNominal, 0.6 * kNominal, 0.5 * kNominal), 0.5 * kNominal)
      << "losses never raise the budget";
}

TEST(CcPacePolicer, WatchIsQuietWhenNothingWasLostLately) {
  PolicerWatch watch(kWindow);
  EXPECT_TRUE(watch.quiet());
  watch.on_loss(4096);
  EXPECT_FALSE(watch.quiet());
  watch.look(Instant::from_ns(1'000'000'000), kNominal);
  EXPECT_FALSE(watch.quiet()) << "the window was lossy";
  watch.look(Instant::from_ns(2'000'000'000), kNominal);
  EXPECT_TRUE(watch.quiet());
}

// Such a policer makes cuts seem useless, as a lossy cable does.
TEST(CcPacePolicer, PolicerThatSlowsDuringTheDetectionIsFound) {
  for (int before = 1; before < 2 * kExperiment; ++before) {
    Sender sender;
    sender.policed = 0.8 * kNominal;
    sender.send(before);
    sender.policed = 0.5 * kNominal;
    sender.send(100);
    EXPECT_LT(sender.send(kLong).lost, 0.05) << before;
  }
}

TEST(CcPacePolicer, PolicerAfterALossyCableIsFound) {
  Sender sender;
  sender.cable = 0.4;
  sender.send(100);
  sender.cable = 0;
  sender.policed = 0.4 * kNominal;
  sender.send(kLong);
  EXPECT_LT(sender.send(kLong).lost, 0.05);
}

}  // namespace
}  // namespace pacecar::policer_test
