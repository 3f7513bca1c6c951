#include "transport/softnic/paths/balanced_paths.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace pacecar {
namespace {

// Most free places that are kept. More of them only mean that the flow has slowed down.
constexpr size_t kPlaces = 16;
// How long a path is avoided after a long delay or a trimmed packet (slow), and after a loss.
constexpr int64_t kSlowRoundTrips = 4;
constexpr int64_t kLostRoundTrips = 8;
constexpr uint16_t kMostDoublings = 10;
constexpr int64_t kAverageOf = 64;  // packets
// Although a place is free, one burst in (2 x paths), and at most one in 32, takes the next path in
// turn, so that a path without places is found again.
constexpr uint32_t kTurnPerPath = 2;
constexpr uint32_t kTurnAtLeast = 32;
// Longer delays carry no more information; the bound keeps products in range.
constexpr int64_t kLongestNs = 1'000'000'000;

// True with probability part / whole; both are below 2^31.
bool draw(int64_t part, int64_t whole, Prng& prng) {
  return (prng.next_u64() >> 32) * static_cast<uint64_t>(whole) < static_cast<uint64_t>(part) << 32;
}

}  // namespace

BalancedPaths::BalancedPaths(uint32_t paths, Duration delay_floor, Prng& prng)
    : floor_ns_(std::min(delay_floor.ns(), kLongestNs)),
      turn_every_(std::max(paths * kTurnPerPath, kTurnAtLeast)),
      round_(paths),
      paths_(paths),
      places_(kPlaces) {
  round_.shuffle(prng);
}

Bytes BalancedPaths::bytes(uint32_t paths) {
  return paths * sizeof(Path) + kPlaces * sizeof(uint16_t);
}

uint16_t BalancedPaths::next(Instant now, Prng& prng) {
  if (!places_.empty() && ++since_turn_ < turn_every_) {
    const uint16_t path = places_.front();
    places_.pop_front();
    return path;
  }
  if (!places_.empty()) places_.pop_front();  // replaced by the path in turn
  since_turn_ = 0;
  uint16_t chosen = round_.next(prng);
  for (size_t i = 0; i < paths_.size() && paths_[chosen].avoid_until > now; ++i) {
    chosen = round_.next(prng);
  }
  Path& path = paths_[chosen];
  if (path.losses > 0) {
    path.on_trial = true;
    avoid(path, kLostRoundTrips, now);
  }
  return chosen;
}

void BalancedPaths::on_feedback(uint16_t path, const PathFeedback& feedback, Prng& prng) {
  Path& state = paths_[path];
  switch (feedback.event) {
    case PathEvent::kArrived:
    case PathEvent::kGood:
    case PathEvent::kMarked: return on_arrival(path, feedback, prng);
    case PathEvent::kTrimmed: return avoid(state, kSlowRoundTrips, feedback.now);
    case PathEvent::kLost:
      if (state.losses > 0 && !state.on_trial) return;  // sent before the first loss was known
      avoid(state, kLostRoundTrips << std::min(state.losses, kMostDoublings), feedback.now);
      state.losses = std::min<uint16_t>(state.losses + 1, kMostDoublings);
      state.on_trial = false;
  }
}

void BalancedPaths::on_arrival(uint16_t path, const PathFeedback& feedback, Prng& prng) {
  Path& state = paths_[path];
  const bool echoed = feedback.event != PathEvent::kArrived;
  if (echoed || state.losses > 0) state.avoid_until = Instant();
  state.losses = 0;
  const auto burst = static_cast<uint32_t>(feedback.sent.ns());
  const bool freed = feedback.sent != Instant() && burst == state.freed;
  state.freed = burst;
  if (!echoed && !freed) free(path);
  const int64_t rtt = std::min(feedback.rtt.ns(), kLongestNs);
  if (rtt <= 0) return;
  if (round_trip_ns_ == 0 || rtt < round_trip_ns_) round_trip_ns_ = rtt;
  int64_t delay = rtt - round_trip_ns_;
  // Delays below the floor are noise, so a mark counts like a delay above it.
  if (feedback.event == PathEvent::kMarked) delay += 2 * floor_ns_;
  average_delay_ns_ += delay - average_delay_ns_ / kAverageOf;

  const int64_t difference = delay - average_delay_ns_ / kAverageOf;
  const int64_t meaningful = std::max(std::abs(difference) - floor_ns_, int64_t{0});
  const int64_t whole = std::max(round_trip_ns_, floor_ns_);
  const bool move = meaningful > 0 && draw(std::min(meaningful, whole), whole, prng);
  if (difference > floor_ns_) avoid(state, kSlowRoundTrips, feedback.now);
  if (freed) return;
  const int places = move ? (difference > 0 ? 0 : 2) : 1;
  for (int i = 0; i < places; ++i) free(path);
}

void BalancedPaths::free(uint16_t path) {
  if (places_.full()) places_.pop_front();
  places_.push(std::as_const(path));
}

void BalancedPaths::avoid(Path& path, int64_t round_trips, Instant now) const {
  const int64_t ns = round_trips * std::max(round_trip_ns_, floor_ns_);
  path.avoid_until = std::max(path.avoid_until, now + Duration::from_ns(ns));
}

}  // namespace pacecar
