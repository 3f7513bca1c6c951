#include "cc/core_rate.h"

#include <algorithm>

namespace pacecar {
namespace {

constexpr int kMostLooks = 16;  // After this many intervals without arrivals the rate is 1 again.

double difference(uint64_t now, uint64_t before) { return static_cast<double>(now - before); }

}  // namespace

CoreRate::CoreRate(Duration base_round_trip, double oversubscription)
    : interval_(base_round_trip.scaled(kCoreRate.interval)),
      least_(std::max(kCoreRate.share / oversubscription, kCoreRate.least)) {}

void CoreRate::on_counts(Instant now, const ArrivalCounts& counts) {
  for (int i = 0; i < kMostLooks && next_look_ <= now; ++i) {
    look(counts);
    next_look_ = next_look_ + interval_;
  }
  if (next_look_ <= now) next_look_ = now + interval_;
}

void CoreRate::look(const ArrivalCounts& counts) {
  const double whole = difference(counts.packets, seen_.packets);
  const double marked = difference(counts.marked, seen_.marked);
  const double trimmed = difference(counts.trimmed_in_core, seen_.trimmed_in_core);
  const double all = whole + difference(counts.trimmed, seen_.trimmed);
  seen_ = counts;
  marked_ += kCoreRate.weight * ((whole > 0 ? marked / whole : 0) - marked_);
  const bool many_marked = marked_ > kCoreRate.marked;
  if (trimmed > 0) rate_ -= trimmed / all;
  if (many_marked) rate_ *= 1 - (marked_ - kCoreRate.marked) * kCoreRate.decrease;
  if (trimmed > 0 || many_marked) {
    step_ = kCoreRate.increase;
  } else {
    rate_ += marked > 0 ? kCoreRate.increase : step_;
    step_ = std::min(2 * step_, 1.0);
  }
  rate_ = std::clamp(rate_, least_, 1.0);
}

}  // namespace pacecar
