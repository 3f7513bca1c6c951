#include "cc/pace/link_capacity.h"

#include <algorithm>

namespace pacecar {
namespace {

constexpr double kForget = 1.0 / 4;  // of X, per round trip
constexpr double kManyUncovered = 0.25;
constexpr double kMargin = 1.0 / 8;  // what bursts of our own look like is no traffic of others
constexpr double kMostDrain = 0.5;   // of what could be granted
constexpr double kWeight = 0.5;      // of the newest round trip in X

}  // namespace

bool LinkCapacity::on_arrival(Instant now, Bytes wire, bool covered, Duration excess) {
  const bool over = now - started_ >= window_;
  if (over) close_window(now);
  if (arrived_ == 0) {
    first_ = now;
    first_bytes_ = wire;
  }
  last_ = now;
  arrived_ += wire;
  if (!covered) foreign_ += wire;
  least_excess_ = std::min(least_excess_, excess);
  return over;
}

// A window without arrivals lasts until there is one: it is longer, and its rate lower.
void LinkCapacity::close_window(Instant now) {
  const double foreign = static_cast<double>(foreign_) * 8 / (now - started_).seconds();
  const bool queued = arrived_ > 0 && least_excess_ > usual_ + window_ / 8;
  queue_ = arrived_ > 0 ? std::max(least_excess_ - usual_, Duration()) : Duration();
  double seen = foreign;
  if (queued && last_ - first_ >= window_ / 2) {
    const double own =
        static_cast<double>(arrived_ - first_bytes_) * 8 / (last_ - first_).seconds();
    const double missing = line_ - own + foreign;
    if (missing > kMargin * line_) seen = std::max(seen, missing);
  }
  if (seen > uncovered_) {
    uncovered_ += kWeight * (seen - uncovered_);
  } else {
    uncovered_ -= kForget * (uncovered_ - seen);
  }
  started_ = now;
  arrived_ = foreign_ = 0;
  least_excess_ = Duration::max();
}

// A queue that greedy traffic keeps up is not drained at the cost of the part that is ours.
double LinkCapacity::available(size_t flows) const {
  const double eta = flows <= 1 ? 1.0 : constants_.shared;
  const double least = constants_.least_share * line_;
  const double granted = std::max(eta * line_ - uncovered_, least);
  const double drain =
      line_ * queue_.seconds() / (constants_.drain_round_trips * window_.seconds());
  const double drained = granted - std::min(drain, kMostDrain * granted);
  return uncovered_ < kManyUncovered * line_ ? drained : std::max(drained, least);
}

}  // namespace pacecar
