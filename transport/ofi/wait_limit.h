// WaitLimit: bounds how long a thread waits for a peer or the provider, turn by turn. Only time
// counts in which the thread was running. A turn is short; for the rest of a long turn the thread
// was not scheduled, which on a loaded host may last for a whole limit. On a host that stalls in
// every turn the wait ends, too, but later. Pure. Thread rule: one owner.
#pragma once

#include <algorithm>

#include "transport/base/units.h"

namespace pacecar {

class WaitLimit {
 public:
  explicit WaitLimit(Duration limit) : limit_(limit) {}

  // Call it once a turn. `waited`: time since the wait began. False: the wait is over.
  bool allows(Duration waited) {
    counted_ = counted_ + std::min(waited - waited_, kTurnLimit);
    waited_ = waited;
    return counted_ <= limit_ && waited_ <= limit_ * kStalls;
  }

 private:
  static constexpr Duration kTurnLimit = Duration::from_ms(2);  // most that a turn counts
  static constexpr int64_t kStalls = 20;  // the wait lasts at most this many limits

  Duration limit_;
  Duration waited_;
  Duration counted_;
};

}  // namespace pacecar
