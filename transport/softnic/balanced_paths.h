// BalancedPaths: spreads packets over many paths so that all of them have the same delay.
//
// The first feedback on any packet of a burst frees the burst's place on its path, and the next
// burst takes it: each path carries what it has delivered, so a path that is too full is not filled
// further. On top of that, places move from paths that are slower than the average to faster ones,
// as many as the difference of delay in round trips: a place of a slower path is given up with that
// probability, one of a faster path is doubled. If no place is free, and from time to time in
// exchange for one, the next path that is not known to be slow is taken. Delays are only compared
// with each other: when all paths are equally bad, moving gains nothing. Differences below the
// floor are ignored.
//
// A path that loses a packet is left out for 8 round trips, then tried with one packet; after each
// further loss it is left out for twice as long.
//
// Bounded: 16 bytes for each path and a ring of free places, allocated once. Deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/softnic/path_feedback.h"

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
    bool on_trial = false;  // after a loss: its one packet is in flight
  };

  void on_arrival(uint16_t path, const PathFeedback& feedback, Prng& prng);
  void free(uint16_t path);
  void avoid(Path& path, int64_t round_trips, Instant now) const;

  int64_t floor_ns_;
  int64_t round_trip_ns_ = 0;     // the least on any path; 0: unknown
  int64_t average_delay_ns_ = 0;  // times kAverageOf
  uint32_t turn_every_;           // packets
  uint32_t since_turn_ = 0;       // likewise
  PathRound round_;
  std::vector<Path> paths_;
  FixedQueue<uint16_t> places_;  // paths on which one more packet may be in flight
};

}  // namespace pacecar
