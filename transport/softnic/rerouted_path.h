// ReroutedPath: keeps to one path as long as it is good, and finds another one when it is not.
//
// A path is bad when for a round trip its mean delay was an eighth of a round trip (and above the
// floor), more than one packet in 16 was trimmed, or a packet was lost. Then a search begins: for 4
// round trips each burst takes another one of some candidates, and the one with the least delay is
// kept. A searching flow puts little load on each path, so it hardly harms flows that keep to them.
// The paths of one queue pair share their least delay.
//
// Bounded: the candidates, allocated once. Deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/softnic/path_feedback.h"

namespace pacecar {

class ReroutedPath {
 public:
  ReroutedPath(uint32_t paths, Duration delay_floor, Prng& prng);

  uint16_t next();
  // `path` is one of ours.
  void on_feedback(uint16_t path, const PathFeedback& feedback, Prng& prng);

  // A better path is being searched, or soon will be.
  bool searching() const { return searching_ || kept_.refused > 0; }

  static Bytes bytes(uint32_t paths);

 private:
  // Feedback on a path since a search or a round trip began.
  struct PathSamples {
    uint16_t path = 0;
    uint32_t arrived = 0;
    uint32_t refused = 0;  // trimmed or lost
    int64_t delay_ns = 0;  // sum over those that arrived

    int64_t mean_delay_ns() const { return arrived > 0 ? delay_ns / arrived : 0; }
  };

  static void count(PathSamples& samples, const PathFeedback& feedback, int64_t delay_ns);
  void judge(const PathFeedback& feedback, Prng& prng);
  void search(Instant now, Prng& prng);
  void decide(Instant now, Prng& prng);
  void keep(uint16_t path, Instant now);
  Duration round_trips(int64_t count) const;

  uint32_t paths_;
  int64_t floor_ns_;
  int64_t round_trip_ns_ = 0;  // the least on any path; 0: unknown
  PathSamples kept_;
  Instant until_;  // of the present round trip, or search
  bool searching_ = false;
  uint32_t turn_ = 0;  // of the candidates
  std::vector<PathSamples> candidates_;
};

}  // namespace pacecar
