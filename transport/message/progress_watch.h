// ProgressWatch: whether the requests of a connection make progress. Pure.
#pragma once

#include "transport/base/units.h"
#include "transport/message/flow_status.h"

namespace pacecar {

class ProgressWatch {
 public:
  // Called by housekeeping: a request is pending, and progress is counted in `moves`. True when a
  // stall begins or ends.
  bool update(bool waits, uint64_t moves, Instant now) {
    if (!waits || !waits_ || moves != moves_) {
      const bool ends = stalled_;
      *this = ProgressWatch();
      moves_ = moves;
      since_ = now;
      waits_ = waits;
      return ends;
    }
    const bool begins = !stalled_ && now - since_ >= kStallLimit;
    stalled_ |= begins;
    return begins;
  }

  bool waits() const { return waits_; }
  bool stalled() const { return stalled_; }
  // How long nothing has moved.
  Duration stalled_for(Instant now) const { return now - since_; }

 private:
  uint64_t moves_ = 0;
  Instant since_;
  bool waits_ = false;
  bool stalled_ = false;
};

}  // namespace pacecar
