// ProgressWatch: whether the requests of a connection make progress. Pure.
#pragma once

#include <cstdint>

#include "transport/base/attended_time.h"
#include "transport/base/units.h"
#include "transport/message/flow_status.h"

namespace pacecar {

class ProgressWatch {
 public:
  // `waits`: a request is pending; `moves` counts progress.
  void update(bool waits, uint64_t moves, Instant now) {
    const Instant time = time_.at(now);
    if (!waits || !waits_ || moves != moves_) since_ = time;
    moves_ = moves;
    waits_ = waits;
    stalled_ = waits && time - since_ >= kStallLimit;
  }

  bool waits() const { return waits_; }
  bool stalled() const { return stalled_; }
  // How long nothing has moved while this host attended to it.
  Duration stalled_for(Instant now) const { return now - time_.missed() - since_; }

 private:
  AttendedTime time_{Instant()};
  uint64_t moves_ = 0;
  Instant since_;
  bool waits_ = false;
  bool stalled_ = false;
};

}  // namespace pacecar
