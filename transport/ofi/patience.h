// How long a thread waits for a peer or the provider, turn by turn. Pure.
//
// What counts is how long it could hear anybody: a turn takes little, and in the rest the thread
// was kept from its core, which a loaded host may do for all of a limit. A host that does so in
// every turn ends the wait as well, later.
#pragma once

#include <algorithm>

#include "transport/base/units.h"

namespace pacecar {

class Patience {
 public:
  explicit Patience(Duration limit) : limit_(limit) {}

  // Told once a turn for how long it has been waiting, in all. False: long enough.
  bool lasts(Duration waited) {
    counted_ = counted_ + std::min(waited - waited_, kTurnLimit);
    waited_ = waited;
    return counted_ <= limit_ && waited_ <= limit_ * kStalls;
  }

 private:
  static constexpr Duration kTurnLimit = Duration::from_ms(2);  // what a turn counts for at most
  static constexpr int64_t kStalls = 20;  // of a host that stalls: so many times the limit in all

  Duration limit_;
  Duration waited_;
  Duration counted_;
};

}  // namespace pacecar
