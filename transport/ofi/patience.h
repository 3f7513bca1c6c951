// How long a thread waits for a peer or the provider, turn by turn. Pure.
//
// Only time in which the thread was running counts: a turn is short, and for the rest of a long one
// the thread was not scheduled, which on a loaded host may last for a whole limit. A host that
// stalls in every turn ends the wait, too, but later.
#pragma once

#include <algorithm>

#include "transport/base/units.h"

namespace pacecar {

class Patience {
 public:
  explicit Patience(Duration limit) : limit_(limit) {}

  // Call it once a turn; `waited`: time since the wait began. False: long enough.
  bool lasts(Duration waited) {
    counted_ = counted_ + std::min(waited - waited_, kTurnLimit);
    waited_ = waited;
    return counted_ <= limit_ && waited_ <= limit_ * kStalls;
  }

 private:
  static constexpr Duration kTurnLimit = Duration::from_ms(2);  // most that a turn counts
  static constexpr int64_t kStalls = 20;  // on a stalling host: limits in all, at most

  Duration limit_;
  Duration waited_;
  Duration counted_;
};

}  // namespace pacecar
