// Exact pacing of one flow. The pacer keeps the instant at which the next byte may leave, in
// nanoseconds with a 64-bit fraction (64 bytes at 400 Gb/s take 1.28 ns), so that rounding never
// adds up: the long-run rate is exact although polls come late and at whole nanoseconds.
// Invariant: over any interval of length t at rate r, a caller that sends only when
// next_send() <= now sends at most r * t + catch_up_bytes + one packet. After excuse() it sends
// 9/8 of r * t until the excused lateness is caught up. move_to() adds at most what one and a half
// of the longest grid period carry, in all: a grid delays a packet by at most a period, and lets it
// leave at most half a period early. Instants are not negative. Thread rule: one owner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "transport/base/send_grid.h"
#include "transport/base/units.h"

namespace pacecar {

class Pacer {
 public:
  // A caller that polls late may catch up by at most this much, so that an idle flow does not
  // burst. It should cover the usual lateness at the highest rate, and at least what that rate
  // moves in a nanosecond. The pacer starts stopped.
  explicit Pacer(Bytes catch_up_bytes) : catch_up_bytes_(catch_up_bytes) {}

  // Takes effect with the next new rate.
  void set_catch_up(Bytes bytes) { catch_up_bytes_ = bytes; }

  // How a new rate treats the packet that already waits for its time.
  enum class Change : uint8_t {
    kAtOnce,          // bytes sent ahead of the schedule, or earned and not yet sent, stay the same
    kFromNextPacket,  // it keeps its time, and the new rate counts after it
  };

  // Zero stops the flow, at once. The only place with divisions.
  void set_rate(Rate rate, Instant now, Change change = Change::kAtOnce);
  Rate rate() const { return rate_; }

  // Nothing leaves before `first_send`, and the schedule begins there: nothing is earned before it.
  void hold_until(Instant first_send) { hold_ = first_send; }

  // The next byte leaves at `first_send`, even if it would have waited longer, and the schedule
  // continues from there. Bytes sent ahead or earned before are forgotten.
  void align(Instant first_send) {
    hold_ = kNoHold;
    next_ = first_send;
    fraction_ = 0;
    owed_ = 0;
    behind_ = {};
    moved_ = {};
  }

  // The next byte leaves at the instant of the grid that is nearest to its own time, or at the
  // following one if that has passed by more than grid.late, unless the byte was due before now
  // anyway. Later moves compensate for earlier ones; a flow that grids have delayed by a period in
  // all is not moved.
  void move_to(const SendGrid& grid, Instant now);

  // The caller sends at `now`, had something to send since next_send(), and was prevented. Lateness
  // beyond `grace`, `most` in all, is caught up gradually, not at once.
  void excuse(Instant now, Duration grace, Duration most);

  // When the next byte may leave; never() while stopped.
  Instant next_send() const {
    if (rate_ == Rate()) return Instant::never();
    const Instant scheduled = next_ + Duration::from_ns(fraction_ != 0 ? 1 : 0);
    return std::max(scheduled, hold_);
  }

  // Accounts for bytes that left at `now`, whether or not it was time.
  void on_sent(Bytes bytes, Instant now);

 private:
  using Uint128 = unsigned __int128;
  using Int128 = __int128;
  // Bit-nanoseconds: rate in bits per second times time in nanoseconds.
  static constexpr uint64_t kUnitsPerByte = 8'000'000'000;
  static constexpr int kRepayShift = 3;  // an eighth faster than the rate
  static constexpr Instant kNoHold = Instant::from_ns(std::numeric_limits<int64_t>::min());
  static constexpr Instant kFarthest = Instant::never() - Duration::from_ns(1);

  static Instant clamped(Int128 ns) {
    return Instant::from_ns(
        static_cast<int64_t>(std::clamp<Int128>(ns, kNoHold.ns(), kFarthest.ns())));
  }
  void begin_schedule_at(Instant instant) {
    if (next_ >= instant) return;
    next_ = instant;
    fraction_ = 0;
  }

  Instant next_;           // the schedule: next_ + fraction_ / 2^64 ns
  uint64_t fraction_ = 0;  // undefined while stopped, like next_
  uint64_t ns_per_byte_ = 0;
  uint64_t ns_per_byte_fraction_ = 0;  // in 2^-64 ns
  Duration catch_up_;                  // catch_up_bytes_ at this rate
  Duration behind_;                    // excused, not yet caught up
  Duration moved_;                     // by grids, towards the future: -period / 2 to period
  Instant hold_ = kNoHold;
  Rate rate_;
  Bytes catch_up_bytes_;
  Int128 owed_ = 0;  // while stopped: units sent ahead of the schedule; negative: earned
};

inline void Pacer::excuse(Instant now, Duration grace, Duration most) {
  const Duration late = std::min(now - grace - next_send(), most - behind_);
  if (late <= Duration()) return;
  begin_schedule_at(hold_);
  next_ = next_ + late;
  behind_ = behind_ + late;
}

inline void Pacer::on_sent(Bytes bytes, Instant now) {
  if (rate_ == Rate()) {
    owed_ += static_cast<Int128>(Uint128{bytes} * kUnitsPerByte);
    return;
  }
  begin_schedule_at(std::max(hold_, now - catch_up_));
  const Uint128 fraction = Uint128{bytes} * ns_per_byte_fraction_ + fraction_;
  auto ns = static_cast<Int128>(Uint128{bytes} * ns_per_byte_ + (fraction >> 64));
  fraction_ = static_cast<uint64_t>(fraction);
  const auto repaid = static_cast<int64_t>(std::min<Int128>(behind_.ns(), ns >> kRepayShift));
  behind_ = behind_ - Duration::from_ns(repaid);
  next_ = clamped(next_.ns() + ns - repaid);
}

}  // namespace pacecar
