// The link budget that a process learns stays in bounds, for any arrivals and delays.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "cc/pace/link_budget.h"

namespace pacecar::budget_property {
namespace {

Duration any_span() {
  const auto scale = *rc::gen::element<int64_t>(1, 1000, 1'000'000, 100'000'000);
  return Duration::from_ns(*rc::gen::inRange<int64_t>(0, 1000) * scale);
}

Duration any_excess() {
  return *rc::gen::weightedElement<bool>({{4, true}, {1, false}}) ? any_span() : Duration::max();
}

// A link budget with random inputs, and the part of the link that it was given.
class AnyBudget {
 public:
  AnyBudget()
      : config_{.line = Rate::from_bps(*rc::gen::inRange<uint64_t>(1, 1'000'000) *
                                       *rc::gen::element<uint64_t>(1, 1000, 1'000'000)),
                .first = Rate::from_bps(
                    *rc::gen::element<uint64_t>(0, 0, 1, 1'000'000, 1'000'000'000'000)),
                .packet = *rc::gen::inRange<Bytes>(1, 65'536),
                .round_trip = Duration::from_ns(*rc::gen::inRange<int64_t>(0, 10'000'000)),
                .jitter = Duration::from_ns(*rc::gen::inRange<int64_t>(0, 1'000'000)),
                .base_memory = Duration::from_ms(*rc::gen::inRange<int64_t>(1, 2000))},
        budget_(config_),
        part_(static_cast<double>(config_.line.bps())) {}

  // True where the budget's rate may have changed.
  bool step() {
    now_ = now_ + any_span();
    switch (*rc::gen::inRange(0, 11)) {
      case 0:
        budget_.set_weight(*rc::gen::element(1.0, 3.5, 1000.0), *rc::gen::element(0.001, 0.5, 1.0));
        return false;
      case 1: budget_.set_patience(*rc::gen::inRange<int64_t>(1, 16)); return false;
      case 2:
        part_ = static_cast<double>(config_.line.bps()) / *rc::gen::inRange(1, 1000);
        budget_.set_part(part_);
        return true;
      default: return stream();
    }
  }

  void check() const {
    const double rate = budget_.rate();
    RC_ASSERT(std::isfinite(rate));
    RC_ASSERT(rate > 0);
    RC_ASSERT(rate <= static_cast<double>(config_.line.bps()));
    RC_ASSERT(rate <= part_);
    RC_ASSERT(!budget_.starting() || config_.first > Rate());
  }
  double rate() const { return budget_.rate(); }

 private:
  // Some packets at one rate, all with the same excess delay.
  bool stream() {
    const Duration gap = any_span() / 100;
    const Duration excess = any_excess();
    const Bytes wire = *rc::gen::element<Bytes>(0, 1, config_.packet, 1'000'000, Bytes{1} << 40);
    bool changed = false;
    for (int i = *rc::gen::inRange(1, 50); i > 0; --i) {
      now_ = now_ + gap;
      changed |= budget_.on_bytes(now_, wire, excess);
      check();
    }
    return changed;
  }

  const LinkBudgetConfig config_;
  LinkBudget budget_;
  double part_;
  Instant now_ = Instant::from_ns(1'000'000'000);
};

RC_GTEST_PROP(CcPaceBudgetProperty, BudgetStaysInBounds, ()) {
  AnyBudget budget;
  budget.check();
  for (int i = *rc::gen::inRange(0, 60); i > 0; --i) {
    const double before = budget.rate();
    const bool may_change = budget.step();
    budget.check();
    RC_ASSERT(may_change || budget.rate() == before);
  }
}

// After any history, a link without queues is used in full again.
RC_GTEST_PROP(CcPaceBudgetProperty, BudgetRecoversToTheLineRateWithoutQueues, ()) {
  const Rate line = Rate::from_gbps(1);
  LinkBudget budget({.line = line,
                     .packet = 4096,
                     .round_trip = Duration::from_us(100),
                     .jitter = Duration::from_us(10),
                     .base_memory = Duration::from_s(1)});
  Instant now = Instant::from_ns(1'000'000'000);
  for (int i = *rc::gen::inRange(0, 20); i > 0; --i) {
    const Duration gap = Duration::from_us(*rc::gen::inRange<int64_t>(30, 3000));
    const Duration late = Duration::from_us(*rc::gen::inRange<int64_t>(0, 20'000));
    for (int packets = 0; packets < 100; ++packets) {
      now = now + gap;
      budget.on_bytes(now, 4096, late);
    }
  }
  const auto full = static_cast<double>(line.bps());
  for (const Instant end = now + Duration::from_s(5); now < end && budget.rate() < full;) {
    now = now + Duration::from_ns(static_cast<int64_t>(4096 * 8e9 / budget.rate()));
    budget.on_bytes(now, 4096, Duration());
  }
  RC_ASSERT(budget.rate() == full);
}

}  // namespace
}  // namespace pacecar::budget_property
