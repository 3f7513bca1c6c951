// Time in which this process looks at its peers, for time limits on what peers do: time in which it
// was stopped, starved or computing is nobody's silence.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace pacecar::fabric {

class AttendedTime {
 public:
  using Clock = std::chrono::steady_clock;

  // `longest_turn`: the most that counts between two looks.
  explicit AttendedTime(Clock::duration longest_turn) : longest_turn_(longest_turn) {}

  // Counts the time since the last look, and returns it.
  Clock::duration look(Clock::time_point now) {
    const auto turn = std::min(now - std::exchange(looked_at_, now), longest_turn_);
    total_ += turn;
    return turn;
  }
  Clock::duration total() const { return total_; }

 private:
  Clock::duration longest_turn_;
  Clock::duration total_{};
  Clock::time_point looked_at_ = Clock::now();  // last
};

}  // namespace pacecar::fabric
