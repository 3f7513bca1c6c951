// A hierarchical timer wheel. Memory is fixed at construction; arm, cancel and expire cost O(1) (a
// timer moves down at most once per level). Timers are never early: within a tick deadlines are
// compared exactly. Levels have 64 slots each; a slot of level 0 is one tick (1,024 ns), a slot of
// level n + 1 spans all of level n. Nine levels cover every Instant, so no overflow list is needed.
// A timer sits at the level of the highest base-64 digit in which its tick differs from the present
// tick. Hence, invariant: every timer of a level is due before every timer of the levels above, and
// the first occupied slot of a level has its earliest timer. Thread rule: one owner.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/units.h"

namespace pacecar {

class TimerWheel {
 public:
  // Timers are named 0 .. capacity-1 by the caller. `start` is the earliest `now` to come.
  TimerWheel(uint32_t capacity, Instant start);

  // Arms or moves timer `id`. never() cancels; a deadline in the past is due at the next expire().
  void arm(uint32_t id, Instant deadline);
  void cancel(uint32_t id);
  bool armed(uint32_t id) const;

  // Disarms timers with deadline <= now, writes their ids to `out` and returns how many. Stops when
  // `out` is full: call again. `now` never decreases. Order: by tick of the deadline (or of the
  // arming, where the deadline had passed by then), within a tick as they lie.
  size_t expire(Instant now, std::span<uint32_t> out);

  // never() when nothing is armed. Else not later than the earliest deadline, and equal to it when
  // that is in the current block of 64 ticks. Later than the `now` of an expire() that did not fill
  // its `out`, unless a timer armed since is due.
  Instant next_deadline() const;

 private:
  static constexpr unsigned kTickShift = 10;
  static constexpr unsigned kDigitBits = 6;
  static constexpr unsigned kSlots = 1U << kDigitBits;
  static constexpr unsigned kLevels = (64 - kTickShift) / kDigitBits;
  static_assert(kLevels * kDigitBits + kTickShift == 64, "the levels cover every Instant");

  // A timer, or the head of a slot's circular list. A timer that is not armed links to itself.
  struct Node {
    Instant deadline;
    uint32_t next;
    uint32_t previous;
  };
  struct Slot {
    unsigned level;
    uint32_t head;        // index of its head in nodes_
    uint64_t first_tick;  // where its span begins
  };

  static uint64_t tick_of(Instant instant);
  static Instant start_of(uint64_t tick);
  std::optional<Slot> earliest_slot() const;
  void link(uint32_t id);
  void unlink(uint32_t id);
  void cascade(const Slot& slot);
  size_t take_due(const Slot& slot, Instant now, std::span<uint32_t> out);

  uint32_t capacity_;
  uint64_t tick_;                             // no armed timer sits before it
  std::array<uint64_t, kLevels> occupied_{};  // one bit per slot
  uint32_t levels_ = 0;                       // one bit per level: some slot of it is occupied
  std::vector<Node> nodes_;  // the timers, then the heads of all slots, level by level
};

}  // namespace pacecar
