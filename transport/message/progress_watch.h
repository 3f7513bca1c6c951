// ProgressWatch: whether the requests of a connection make progress. Pure.
#pragma once

#include <utility>

#include "transport/base/attended_time.h"
#include "transport/base/units.h"
#include "transport/message/flow_status.h"

namespace pacecar {

class ProgressWatch {
 public:
  // `waits`: a request is pending; `moves` counts progress. True when a stall begins or ends.
  bool update(bool waits, uint64_t moves, Instant now) {
    const Instant time = time_.at(now);
    if (!waits || !waits_ || moves != moves_) {
      moves_ = moves;
      since_ = time;
      waits_ = waits;
      silent_ = false;
      return std::exchange(stalled_, false);
    }
    const bool begins = !stalled_ && time - since_ >= kStallLimit;
    stalled_ |= begins;
    return begins;
  }

  // During a stall: true when the peer falls silent, or answers again.
  bool turns_silent(bool silent) { return std::exchange(silent_, silent) != silent; }

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
  bool silent_ = false;
};

}  // namespace pacecar
