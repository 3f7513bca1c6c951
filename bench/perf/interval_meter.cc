#include "bench/perf/interval_meter.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

namespace pacecar::perf {
namespace {

constexpr double kWorthReporting = 0.005;

}  // namespace

void LimitsSeen::add(const FlowView& flow) {
  ++found_[flow.limited_by];
  ++samples_;
  last_ = flow;
}

void LimitsSeen::add(const LimitsSeen& later) {
  if (!later.any()) return;
  for (const auto& [reason, found] : later.found_) found_[reason] += found;
  samples_ += later.samples_;
  last_ = later.last_;
}

nlohmann::json LimitsSeen::shares() const {
  nlohmann::json shares = nlohmann::json::object();
  for (const auto& [reason, found] : found_) shares[std::string(reason)] = share(found);
  return shares;
}

std::string LimitsSeen::words() const {
  std::multimap<uint64_t, std::string_view, std::greater<>> by_frequency;
  for (const auto& [reason, found] : found_) by_frequency.emplace(found, reason);
  std::string words;
  for (const auto& [found, reason] : by_frequency) {
    if (share(found) < kWorthReporting) break;
    words += fmt::format("{}{} {:.0f}%{}", words.empty() ? "" : ", ", reason, 100 * share(found),
                         words.empty() ? " of the time" : "");
  }
  return words;
}

IntervalMeter::IntervalMeter(Duration length, uint64_t min_messages, bool punctual)
    : length_(length), min_messages_(min_messages), punctual_(punctual) {
  intervals_.reserve(kMaxIntervals);
}

void IntervalMeter::sample(const FlowView& flow) {
  current_.add(flow);
  limits_.add(flow);
}

bool IntervalMeter::count(Duration since_start, uint64_t total) {
  const bool few = total - counted_ < min_messages_;
  if (since_start - start_ < length_ || (few && !punctual_)) return false;
  last_ = cut(since_start, total);
  if (!few) peak_ = std::max(peak_, last_.per_second());
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
