// Divides a message among lanes by each lane's recent rate and backlog, so that all finish at the
// same time. Pure: time is an argument. Thread rule: one thread at a time.
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
  Bytes sample_ = 0;  // done since the last sample
  Duration worked_;   // busy time since then
  double rate_ = 0;
};

// The bytes for each lane, in the order of the message; their sum is `size`. Only `usable` lanes
// get bytes. A small message goes over one lane; the parts of a larger one begin at multiples of
// 4,096 bytes, so that no line that a GPU polls is divided.
std::array<Bytes, kMaxLanes> split(Bytes size, std::span<const LaneMeter> lanes, LaneMask usable);

}  // namespace pacecar
