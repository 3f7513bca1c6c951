// ReroutedPath: uses one path while it is good, and searches for another one when it is bad.
// A path is bad if during one round trip its mean delay exceeded an eighth of a round trip (and the
// floor), or more than one packet in 16 was trimmed; or if a packet was lost. Then a search begins:
// for 4 round trips the bursts take up to 16 candidate paths in turn, and the best one is kept:
// that with the fewest lost and trimmed packets, among equals that with the least mean delay. A
// flow that searches loads each path little, so it hardly harms the flows that stay on it. Delay is
// measured from the shortest round trip of all paths of the queue pair.
// Bounded: the candidates, allocated once. Deterministic. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/softnic/paths/path_feedback.h"

namespace pacecar {

class ReroutedPath {
 public:
  ReroutedPath(uint32_t paths, Duration delay_floor, Prng& prng);

  uint16_t next();
  // `path` is one of ours.
  void on_feedback(uint16_t path, const PathFeedback& feedback, Prng& prng);

  // A search is in progress, or will probably begin soon.
  bool searching() const { return searching_ || chosen_.refused > 0; }

  static Bytes bytes(uint32_t paths);

 private:
  // Feedback on a path since a search or a round trip began.
  struct PathSamples {
    uint16_t path = 0;
    uint32_t arrived = 0;
    uint32_t refused = 0;  // trimmed or lost
    int64_t delay_ns = 0;  // sum over arrived packets

    int64_t mean_delay_ns() const { return arrived > 0 ? delay_ns / arrived : 0; }
  };

  static void count(PathSamples& samples, const PathFeedback& feedback, int64_t delay_ns);
  void judge(const PathFeedback& feedback, Prng& prng);
  void search(Instant now, Prng& prng);
  void decide(Instant now, Prng& prng);
  void choose(uint16_t path, Instant now);
  Duration round_trips(int64_t count) const;

  uint32_t paths_;
  int64_t floor_ns_;
  int64_t round_trip_ns_ = 0;  // the least on any path; 0: unknown
  PathSamples chosen_;
  Instant until_;  // of the present round trip, or search
  bool searching_ = false;
  uint32_t turn_ = 0;  // of the candidates
  std::vector<PathSamples> candidates_;
};

}  // namespace pacecar
