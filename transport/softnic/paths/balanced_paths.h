// BalancedPaths: spreads packets over many paths so that all of them have the same delay.
// A burst in flight occupies a place on its path. The first feedback on any of its packets frees
// the place, and the next burst takes it. So each path gets as much as it delivers, and a path with
// a queue is not filled further. In addition, places move from paths that are slower than the
// average to faster ones: with a probability equal to the difference of delay in round trips, a
// place of a slower path is dropped, and one of a faster path is doubled. If no place is free, and
// from time to time instead of a free place, the next path that is not known to be slow is taken.
// Delays are only compared with each other: if all paths are equally slow, moving gains nothing.
// Differences below the floor are ignored. A path that loses a packet is not used for 8 round
// trips, and then tried with one packet. Each further loss doubles that time. Bounded: 16 bytes for
// each path and a ring of free places, allocated once. Deterministic. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/softnic/paths/path_feedback.h"

namespace pacecar {

class BalancedPaths {
 public:
  BalancedPaths(uint32_t paths, Duration delay_floor, Prng& prng);

  uint16_t next(Instant now, Prng& prng);
  // `path` is one of ours.
  void on_feedback(uint16_t path, const PathFeedback& feedback, Prng& prng);

  static Bytes bytes(uint32_t paths);

 private:
  struct Path {
    Instant avoid_until;
    uint32_t freed = 0;     // send time, in ns, of the burst that last freed its place
    uint16_t losses = 0;    // in a row, without an arrival between
    bool on_trial = false;  // after a loss: its trial packet is in flight
  };

  void on_arrival(uint16_t path, const PathFeedback& feedback, Prng& prng);
  void free(uint16_t path);
  void avoid(Path& path, int64_t round_trips, Instant now) const;

  int64_t floor_ns_;
  int64_t round_trip_ns_ = 0;     // the least on any path; 0: unknown
  int64_t average_delay_ns_ = 0;  // times kAverageOf
  uint32_t turn_every_;           // packets
  uint32_t since_turn_ = 0;       // packets
  PathRound round_;
  std::vector<Path> paths_;
  FixedQueue<uint16_t> places_;  // free places: the paths on which one more burst may be in flight
};

}  // namespace pacecar
