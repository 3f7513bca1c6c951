// How a message is divided among lanes, so that all of them are done at the same time: by what each
// has carried of late, and by what it has still to carry.
//
// Pure: time is an argument. One thread at a time.
#pragma once

#include <array>
#include <span>

#include "transport/api/bond/lanes.h"
#include "transport/base/units.h"

namespace pacecar {

// What a lane carries per second while it has something to carry.
class LaneMeter {
 public:
  void on_posted(Bytes bytes, Instant now);
  void on_done(Bytes bytes, Instant now);

  Bytes outstanding() const { return outstanding_; }
  // Bytes per second; 0 until it is known.
  double rate() const { return rate_; }

 private:
  Bytes outstanding_ = 0;
  Instant busy_since_;
  Bytes sample_ = 0;  // done since then, at work
  Duration worked_;
  double rate_ = 0;
};

// Bytes of each lane, in the order of the message; their sum is `size`. Lanes out of `usable` get
// none. A small message goes over one lane as a whole; parts of others begin at multiples of
// 4,096 bytes, so that no line that a GPU polls is divided.
std::array<Bytes, kMaxLanes> split(Bytes size, std::span<const LaneMeter> lanes, LaneMask usable);

}  // namespace pacecar
