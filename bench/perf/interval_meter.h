// Cuts a phase into intervals and counts the messages of each, for rates over time and their peak.
// Pure.
//
// count() ends an interval that has its length and at least `min_messages`, so that a burst of
// completions is not taken for a rate; with `punctual`, an interval with fewer ends too, and does
// not count for the peak. Memory is bounded: after kMaxIntervals, neighbours are joined and the
// length doubles; the peak remains that of the shorter intervals. Each interval counts the samples
// of each limit of the flow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "transport/api/pacecar.hpp"
#include "transport/base/units.h"

namespace pacecar::perf {

// What limited the flow, by samples.
class LimitsSeen {
 public:
  void add(const FlowView& flow);
  // Adds later samples.
  void add(const LimitsSeen& later);

  bool any() const { return samples_ > 0; }
  uint64_t samples() const { return samples_; }
  const FlowView& last() const { return last_; }
  // The share of samples with each reason: {"grant": 0.93, "network": 0.07}.
  nlohmann::json shares() const;
  // "grant 93% of the time, network 7%": the most frequent first; those below 0.5% are left out.
  std::string words() const;

 private:
  double share(uint64_t found) const {
    return static_cast<double>(found) / static_cast<double>(samples_);
  }

  std::map<std::string_view, uint64_t> found_;  // samples by reason
  uint64_t samples_ = 0;
  FlowView last_;
};

struct Interval {
  Duration start;  // since the phase began
  Duration length;
  uint64_t messages = 0;
  LimitsSeen limits;

  double per_second() const { return static_cast<double>(messages) / length.seconds(); }
};

class IntervalMeter {
 public:
  static constexpr size_t kMaxIntervals = 1000;

  IntervalMeter(Duration length, uint64_t min_messages, bool punctual = false);

  // Adds a sample of the flow.
  void sample(const FlowView& flow);
  // `total`: messages finished since the phase began. True: this ended an interval, now last().
  bool count(Duration since_start, uint64_t total);
  // Ends the last interval, however short; it does not count for the peak.
  void finish(Duration since_start, uint64_t total);

  // When the last interval ended.
  Duration ended() const { return start_; }
  const Interval& last() const { return last_; }
  const std::vector<Interval>& intervals() const { return intervals_; }
  // Messages per second of the fastest interval; 0 without one.
  double peak() const { return peak_; }
  // The limits seen in all intervals.
  const LimitsSeen& limits() const { return limits_; }

 private:
  Interval cut(Duration since_start, uint64_t total);
  void join_neighbours();

  Duration length_;
  uint64_t min_messages_;
  bool punctual_;
  std::vector<Interval> intervals_;
  Interval last_;
  Duration start_;  // of the current interval
  uint64_t counted_ = 0;
  LimitsSeen current_;
  LimitsSeen limits_;
  double peak_ = 0;
};

}  // namespace pacecar::perf
