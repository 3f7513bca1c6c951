// WaterFill: weighted max-min sharing of one link. Each member has a limit (its usable rate) and a
// weight; the level is the rate per weight at which the members' rates, min(limit, weight * level),
// add up to the capacity. Members are kept as sums by the level at which they are satisfied, limit
// / weight, in classes that are 1/64 of an octave wide, in a Fenwick tree: adding, removing and
// finding the level take O(log classes), whatever the number of members. Members of the class in
// which the level lies count as not satisfied, so the rates never add up to more than the capacity,
// and to at most 1.1% less. Sums are integers, so removing undoes adding exactly. Pure; one thread.
#pragma once

#include <cstdint>
#include <limits>

#include "transport/base/fresh_pages.h"
#include "transport/base/units.h"

namespace pacecar {

class WaterFill {
 public:
  static constexpr double kNoLevel = std::numeric_limits<double>::infinity();

  void add(Rate limit, uint32_t weight) { change(limit, weight, +1); }
  void remove(Rate limit, uint32_t weight) { change(limit, weight, -1); }

  // The level, in bit/s per weight; kNoLevel if all limits together are at most `capacity` (bit/s).
  double level(double capacity) const;
  // Sum of all limits, in bit/s.
  double limits() const { return 1e3 * static_cast<double>(total_.kbps); }
  uint64_t weights() const { return static_cast<uint64_t>(total_.weight); }

 private:
  static constexpr uint32_t kPerOctave = 64;
  static constexpr int kLeastExponent = 10;  // kbit/s: all lower levels are one class
  static constexpr uint32_t kClasses = 2048;

  struct Sum {
    int64_t kbps = 0;
    int64_t weight = 0;
  };

  static uint32_t class_of(double kbps);
  static double least_level(uint32_t number);  // of a class from 1 on, kbit/s
  void change(Rate limit, uint32_t weight, int64_t sign);

  Sum total_;
  // Few members use few classes: untouched pages take no memory.
  OwnPages<Sum> tree_{kClasses + 1};  // Fenwick: index 1 ..
};

}  // namespace pacecar
