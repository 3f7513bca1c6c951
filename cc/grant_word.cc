#include "cc/grant_word.h"

#include <algorithm>
#include <bit>

namespace pacecar::wire {
namespace {

constexpr int kExponentBits = 5;
constexpr int kRateMantissa = 19;
constexpr int kValidityMantissa = 3;
constexpr int64_t kPhaseUnitNs = 64;
constexpr int64_t kValidityUnitNs = 1000;

// An unsigned float with gradual underflow: codes grow with values, and small values are exact.
constexpr uint64_t encode_float(uint64_t value, int mantissa_bits) {
  const uint64_t hidden = uint64_t{1} << mantissa_bits;
  const uint64_t largest = ((hidden << 1) - 1) << ((1 << kExponentBits) - 2);
  value = std::min(value, largest);
  if (value < hidden) return value;
  const int shift = static_cast<int>(std::bit_width(value)) - mantissa_bits - 1;
  return (static_cast<uint64_t>(shift) << mantissa_bits) + (value >> shift);
}

constexpr uint64_t decode_float(uint64_t code, int mantissa_bits) {
  const uint64_t hidden = uint64_t{1} << mantissa_bits;
  if (code < hidden) return code;
  const uint64_t exponent = code >> mantissa_bits;
  return (hidden + (code & (hidden - 1))) << (exponent - 1);
}

constexpr uint64_t field(uint64_t word, int shift, int bits) {
  return (word >> shift) & ((uint64_t{1} << bits) - 1);
}

uint64_t units(Duration d, int64_t unit_ns) {
  return static_cast<uint64_t>(std::max<int64_t>(d.ns(), 0) / unit_ns);
}

}  // namespace

uint64_t encode_grant(const Grant& grant) {
  const uint64_t phase = std::min<uint64_t>(units(grant.phase, kPhaseUnitNs), 0xFFFF);
  const uint64_t validity = encode_float(units(grant.validity, kValidityUnitNs), kValidityMantissa);
  return encode_float(grant.rate.bps(), kRateMantissa) << 40 | phase << 24 | validity << 16 |
         grant.epoch;
}

Grant decode_grant(uint64_t word) {
  const uint64_t validity = decode_float(field(word, 16, 8), kValidityMantissa);
  return {.rate = Rate::from_bps(decode_float(field(word, 40, 24), kRateMantissa)),
          .phase = Duration::from_ns(static_cast<int64_t>(field(word, 24, 16)) * kPhaseUnitNs),
          .validity = Duration::from_ns(static_cast<int64_t>(validity) * kValidityUnitNs),
          .epoch = static_cast<uint16_t>(field(word, 0, 16))};
}

uint64_t encode_demand(const Demand& demand) {
  return encode_float(demand.usable.bps(), kRateMantissa) << 40 |
         encode_float(demand.backlog, kRateMantissa) << 16 | demand.epoch;
}

Demand decode_demand(uint64_t word) {
  return {.usable = Rate::from_bps(decode_float(field(word, 40, 24), kRateMantissa)),
          .backlog = decode_float(field(word, 16, 24), kRateMantissa),
          .epoch = static_cast<uint16_t>(field(word, 0, 16))};
}

}  // namespace pacecar::wire
