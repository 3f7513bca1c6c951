// The timers of dcqcn, which the controller evaluates only when it is called, against a model that
// runs every tick.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "cc/dcqcn.h"

namespace pacecar::dcqcn_property {
namespace {

constexpr double kLine = 25e9;

// Advances by one nanosecond at a time; in each: increase, then alpha, then cut.
class TickingDcqcn {
 public:
  explicit TickingDcqcn(const DcqcnConstants& constants) : c_(constants) {}

  // Runs all ticks up to and including `now`.
  void advance(int64_t now) {
    while (now_ < now) tick(++now_);
  }
  void mark() {
    if (started_ < 0) {
      started_ = now_;
    } else {
      alpha_mark_ = true;
    }
    cut_mark_ = true;
  }
  double rate() const { return rate_; }
  double alpha() const { return alpha_; }

 private:
  void tick(int64_t t) {
    if (started_ < 0) return;
    if (cut_at_ >= 0 && t > cut_at_ && (t - cut_at_) % c_.increase_period.ns() == 0) increase();
    if ((t - started_) % c_.alpha_period.ns() == 0) {
      alpha_ = (1 - c_.gain) * alpha_ + (alpha_mark_ ? c_.gain : 0);
      alpha_mark_ = false;
    }
    if ((t - started_) % c_.cut_period.ns() == 0 && cut_mark_) {
      if (stage_ > 0) target_ = rate_;
      rate_ = std::max(static_cast<double>(c_.min_rate.bps()), rate_ * (1 - alpha_ / 2));
      stage_ = 0;
      cut_mark_ = false;
      cut_at_ = t;
    }
  }
  void increase() {
    const auto step = static_cast<double>(
        (stage_ == c_.fast_recovery ? c_.additive_increase : c_.hyper_increase).bps());
    if (stage_ >= c_.fast_recovery) target_ = std::min(kLine, target_ + step);
    rate_ = (rate_ + target_) / 2;
    ++stage_;
  }

  DcqcnConstants c_;
  int64_t now_ = 0;
  int64_t started_ = -1;
  int64_t cut_at_ = -1;
  bool alpha_mark_ = false;
  bool cut_mark_ = false;
  double rate_ = kLine;
  double target_ = kLine;
  double alpha_ = 1;
  int stage_ = 0;
};

RC_GTEST_PROP(CcDcqcn, LateEvaluationOfTimersIsExact, ()) {
  DcqcnConstants constants;
  constants.gain = 1.0 / *rc::gen::inRange(2, 300);
  constants.alpha_period = Duration::from_ns(*rc::gen::inRange<int64_t>(1, 50));
  constants.cut_period = Duration::from_ns(*rc::gen::inRange<int64_t>(1, 200));
  constants.increase_period = Duration::from_ns(*rc::gen::inRange<int64_t>(1, 2000));
  constants.fast_recovery = *rc::gen::inRange(0, 4);
  constants.additive_increase = Rate::from_bps(*rc::gen::inRange<uint64_t>(1, 5000) * 1'000'000);
  DcqcnController late(
      {.line_rate = Rate::from_gbps(25), .mtu = 1000, .burst_bytes = 1000, .base_rtt = {}},
      constants);
  TickingDcqcn model(constants);
  int64_t now = 0;
  for (int i = *rc::gen::inRange(1, 60); i > 0; --i) {
    now += *rc::gen::element<int64_t>(0, 1, 7, 100, 3000) * *rc::gen::inRange(1, 5);
    model.advance(now);
    if (*rc::gen::inRange(0, 3) > 0) {
      late.on_ack(Instant::from_ns(now), {.marked = 1});
      model.mark();
      RC_ASSERT(std::abs(late.alpha() - model.alpha()) <= 1e-9);
    }
    const auto rate = static_cast<double>(late.decide(Instant::from_ns(now)).rate.bps());
    RC_ASSERT(std::abs(rate - model.rate()) <= 2);  // the controller's rates are whole bit/s
  }
}

}  // namespace
}  // namespace pacecar::dcqcn_property
