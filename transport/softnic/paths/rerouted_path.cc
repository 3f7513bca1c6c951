#include "transport/softnic/paths/rerouted_path.h"

#include <algorithm>

namespace pacecar {
namespace {

constexpr uint32_t kMostCandidates = 16;
constexpr int64_t kSearchRoundTrips = 4;
constexpr int64_t kDelayShare = 8;      // of a round trip
constexpr uint32_t kRefusedShare = 16;  // of the packets with feedback
constexpr int64_t kLongestNs = 1'000'000'000;

}  // namespace

ReroutedPath::ReroutedPath(uint32_t paths, Duration delay_floor, Prng& prng)
    : paths_(paths),
      floor_ns_(std::min(delay_floor.ns(), kLongestNs)),
      candidates_(std::min(paths, kMostCandidates)) {
  chosen_.path = static_cast<uint16_t>(prng.below(paths));
}

Bytes ReroutedPath::bytes(uint32_t paths) {
  return std::min(paths, kMostCandidates) * sizeof(PathSamples);
}

uint16_t ReroutedPath::next() {
  if (!searching_) return chosen_.path;
  if (++turn_ >= candidates_.size()) turn_ = 0;
  return candidates_[turn_].path;
}

Duration ReroutedPath::round_trips(int64_t count) const {
  return Duration::from_ns(count * std::max(round_trip_ns_, floor_ns_));
}

void ReroutedPath::count(PathSamples& samples, const PathFeedback& feedback, int64_t delay_ns) {
  if (feedback.event == PathEvent::kTrimmed || feedback.event == PathEvent::kLost) {
    ++samples.refused;
  } else if (feedback.rtt > Duration()) {
    ++samples.arrived;
    samples.delay_ns += delay_ns;
  }
}

void ReroutedPath::on_feedback(uint16_t path, const PathFeedback& feedback, Prng& prng) {
  const int64_t rtt = std::min(feedback.rtt.ns(), kLongestNs);
  if (rtt > 0 && (round_trip_ns_ == 0 || rtt < round_trip_ns_)) round_trip_ns_ = rtt;
  // Delays below the floor are noise, so a mark counts like a delay above it.
  const int64_t mark = feedback.event == PathEvent::kMarked ? 2 * floor_ns_ : 0;
  const int64_t delay = rtt - round_trip_ns_ + mark;
  if (!searching_) {
    if (path != chosen_.path) return;  // feedback of an earlier path
    count(chosen_, feedback, delay);
    return judge(feedback, prng);
  }
  for (PathSamples& candidate : candidates_) {
    if (candidate.path == path) count(candidate, feedback, delay);
  }
  if (feedback.now >= until_) decide(feedback.now, prng);
}

void ReroutedPath::judge(const PathFeedback& feedback, Prng& prng) {
  if (feedback.event == PathEvent::kLost) return search(feedback.now, prng);
  if (feedback.now < until_) return;
  const int64_t limit = std::max(round_trip_ns_ / kDelayShare, floor_ns_);
  const bool refused = chosen_.refused * kRefusedShare > chosen_.arrived + chosen_.refused;
  if (refused || chosen_.mean_delay_ns() > limit) return search(feedback.now, prng);
  choose(chosen_.path, feedback.now);
}

void ReroutedPath::search(Instant now, Prng& prng) {
  if (paths_ == 1) return choose(chosen_.path, now);
  for (PathSamples& candidate : candidates_) {
    candidate = {.path = static_cast<uint16_t>(prng.below(paths_))};
  }
  searching_ = true;
  until_ = now + round_trips(kSearchRoundTrips);
}

// Takes the first of the best candidates. Their order differs from flow to flow, so flows that
// search at the same time do not choose the same path.
void ReroutedPath::decide(Instant now, Prng& prng) {
  const PathSamples* best = nullptr;
  const auto better = [](const PathSamples& a, const PathSamples& b) {
    if (a.refused != b.refused) return a.refused < b.refused;
    return a.mean_delay_ns() < b.mean_delay_ns();
  };
  for (const PathSamples& candidate : candidates_) {
    if (candidate.arrived == 0) continue;
    if (best == nullptr || better(candidate, *best)) best = &candidate;
  }
  if (best == nullptr) return search(now, prng);
  choose(best->path, now);
}

void ReroutedPath::choose(uint16_t path, Instant now) {
  searching_ = false;
  chosen_ = {.path = path};
  until_ = now + round_trips(1);
}

}  // namespace pacecar
