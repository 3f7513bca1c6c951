#include "cc/pace/link_capacity.h"

#include <algorithm>

namespace pacecar {
namespace {

constexpr double kForget = 1.0 / 16;  // of X, per round trip
constexpr double kWeight = 0.5;       // of the newest round trip in X

}  // namespace

bool LinkCapacity::on_arrival(Instant now, Bytes wire, bool covered, Duration excess) {
  const bool over = now - started_ >= round_trip_;
  if (over) close_window(now);
  arrived_ += wire;
  if (!covered) foreign_ += wire;
  least_excess_ = std::min(least_excess_, excess);
  return over;
}

// A window without arrivals lasts until there is one: it is longer, and its rate lower.
void LinkCapacity::close_window(Instant now) {
  const double seconds = (now - started_).seconds();
  const double per_second = 8.0 / seconds;
  const double foreign = static_cast<double>(foreign_) * per_second;
  const double own = static_cast<double>(arrived_) * per_second;
  const bool queued = arrived_ > 0 && least_excess_ > jitter_ + round_trip_ / 8;
  queue_ = arrived_ > 0 ? std::max(least_excess_ - jitter_, Duration()) : Duration();
  double seen = foreign;
  if (queued) seen = std::max(seen, line_ - own + foreign);
  if (seen > uncovered_) {
    uncovered_ += kWeight * (seen - uncovered_);
  } else {
    uncovered_ -= kForget * (uncovered_ - seen);
  }
  started_ = now;
  arrived_ = foreign_ = 0;
  least_excess_ = Duration::max();
}

double LinkCapacity::available(size_t flows) const {
  const double eta = flows <= 1 ? 1.0 : constants_.shared;
  const double drain =
      line_ * queue_.seconds() / (constants_.drain_round_trips * round_trip_.seconds());
  const double granted = std::max(eta * line_ - uncovered_, constants_.least_share * line_);
  return std::max(granted - drain, 0.05 * line_);
}

}  // namespace pacecar
