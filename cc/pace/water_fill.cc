#include "cc/pace/water_fill.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pacecar {
namespace {

int64_t kbps_of(Rate rate) { return static_cast<int64_t>(rate.bps() / 1000); }

}  // namespace

// Uses the exponent and the upper bits of the mantissa. So classes are linear within an octave, and
// the same with every compiler, unlike a logarithm.
uint32_t WaterFill::class_of(double kbps) {
  int exponent = 0;
  const double mantissa = std::frexp(kbps, &exponent);  // 0.5 .. 1
  if (exponent <= kLeastExponent) return 0;
  const auto step = static_cast<uint32_t>((mantissa - 0.5) * 2 * kPerOctave);
  const uint32_t octave = static_cast<uint32_t>(exponent - kLeastExponent - 1);
  return std::min(1 + octave * kPerOctave + step, kClasses - 1);
}

double WaterFill::least_level(uint32_t number) {
  const uint32_t octave = (number - 1) / kPerOctave;
  const uint32_t step = (number - 1) % kPerOctave;
  const double mantissa = 0.5 + 0.5 * step / kPerOctave;
  return std::ldexp(mantissa, static_cast<int>(octave) + kLeastExponent + 1);
}

void WaterFill::change(Rate limit, uint32_t weight, int64_t sign) {
  const int64_t kbps = kbps_of(limit);
  const Sum delta{sign * kbps, sign * static_cast<int64_t>(weight)};
  total_.kbps += delta.kbps;
  total_.weight += delta.weight;
  const uint32_t number = class_of(static_cast<double>(kbps) / weight);
  for (uint32_t i = number + 1; i <= kClasses; i += i & (~i + 1)) {
    tree_[i].kbps += delta.kbps;
    tree_[i].weight += delta.weight;
  }
}

// Descends the Fenwick tree to the last class at whose lowest level the members still fit.
double WaterFill::level(double capacity) const {
  const double kbps = capacity / 1e3;
  if (static_cast<double>(total_.kbps) <= kbps) return kNoLevel;
  uint32_t below = 0;  // satisfied classes
  Sum satisfied;
  for (uint32_t step = std::bit_floor(kClasses); step > 0; step /= 2) {
    const uint32_t next = below + step;
    if (next >= kClasses) continue;
    const Sum with{satisfied.kbps + tree_[next].kbps, satisfied.weight + tree_[next].weight};
    const double taken = static_cast<double>(with.kbps) +
                         least_level(next) * static_cast<double>(total_.weight - with.weight);
    if (taken > kbps) continue;
    below = next;
    satisfied = with;
  }
  const auto left = static_cast<double>(total_.weight - satisfied.weight);
  return 1e3 * (kbps - static_cast<double>(satisfied.kbps)) / left;
}

}  // namespace pacecar
