// How a message is divided among lanes, so that all finish at the same time: by each lane's recent
// rate and backlog.
//
// Pure: time is an argument. One thread at a time.
#pragma once

#include <array>
#include <span>

#include "transport/api/bond/lanes.h"
#include "transport/base/units.h"

namespace pacecar {

// The rate of a lane while it has a backlog.
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
  Bytes sample_ = 0;  // carried since then, while busy
  Duration worked_;
  double rate_ = 0;
};

// Bytes of each lane, in the order of the message; their sum is `size`. Only `usable` lanes get
// some. A small message goes over one lane as a whole; parts of larger ones begin at multiples of
// 4,096 bytes, so that no line that a GPU polls is divided.
std::array<Bytes, kMaxLanes> split(Bytes size, std::span<const LaneMeter> lanes, LaneMask usable);

}  // namespace pacecar
