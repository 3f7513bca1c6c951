#include "bench/perf/interval_meter.h"

#include <algorithm>

namespace pacecar::perf {

IntervalMeter::IntervalMeter(Duration length, uint64_t min_messages)
    : length_(length), min_messages_(min_messages) {
  intervals_.reserve(kMaxIntervals);
}

void IntervalMeter::see(const FlowView& flow) {
  current_.add(flow);
  limits_.add(flow);
}

bool IntervalMeter::count(Duration since_start, uint64_t total) {
  if (since_start - start_ < length_ || total - counted_ < min_messages_) return false;
  last_ = cut(since_start, total);
  peak_ = std::max(peak_, last_.per_second());
  if (intervals_.size() == kMaxIntervals) join_neighbours();
  intervals_.push_back(last_);
  return true;
}

void IntervalMeter::finish(Duration since_start, uint64_t total) {
  if (since_start <= start_) return;
  last_ = cut(since_start, total);
  intervals_.push_back(last_);
}

Interval IntervalMeter::cut(Duration since_start, uint64_t total) {
  const Interval interval{start_, since_start - start_, total - counted_, current_};
  start_ = since_start;
  counted_ = total;
  current_ = {};
  return interval;
}

void IntervalMeter::join_neighbours() {
  for (size_t i = 0; i < intervals_.size() / 2; ++i) {
    const Interval& first = intervals_[2 * i];
    const Interval& second = intervals_[2 * i + 1];
    LimitsSeen limits = first.limits;
    limits.add(second.limits);
    intervals_[i] = {first.start, first.length + second.length, first.messages + second.messages,
                     limits};
  }
  intervals_.resize(intervals_.size() / 2);
  length_ = length_ * 2;
}

}  // namespace pacecar::perf
