#include "cc/grant_word.h"

#include <algorithm>
#include <bit>

#include "cc/credit.h"

namespace pacecar::wire {
namespace {

constexpr int kExponentBits = 5;
constexpr int kRateMantissa = 18;
constexpr int kUsableMantissa = 11;
constexpr int kValidityMantissa = 3;
constexpr int64_t kPhaseUnitNs = 64;
constexpr uint64_t kNotAligned = 0xFFFF;
constexpr uint64_t kBusy = 0xFFFE;
constexpr int kWantedBits = 24;

constexpr int64_t kValidityUnitNs = 1000;
// This code in place of a rate marks a word that carries credit. No rate has it.
constexpr uint64_t kCreditMark = 0xFFFFFF;
constexpr uint64_t kCreditMask = (uint64_t{1} << kCreditBits) - 1;

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

uint64_t encode_rate(Rate rate) {
  return std::min(encode_float(rate.bps(), kRateMantissa), (kCreditMark >> 1) - 1);
}

Rate decode_rate(uint64_t word) { return Rate::from_bps(decode_float(word >> 41, kRateMantissa)); }

uint64_t encode_credit(uint64_t units, uint16_t epoch) {
  return kCreditMark << 40 | (units & kCreditMask) << 16 | epoch;
}

bool is_credit(uint64_t word) { return word >> 40 == kCreditMark; }

Bytes decode_credit(uint64_t word) { return field(word, 16, kCreditBits) * kCreditUnit; }

uint16_t decode_epoch(uint64_t word) { return static_cast<uint16_t>(word); }

}  // namespace

uint64_t encode_grant(const Grant& grant) {
  if (grant.is_credit) return encode_credit(grant.credit / kCreditUnit, grant.epoch);
  const uint64_t phase = grant.busy      ? kBusy
                         : grant.aligned ? std::min(units(grant.phase, kPhaseUnitNs), kBusy - 1)
                                         : kNotAligned;
  const uint64_t validity = encode_float(units(grant.validity, kValidityUnitNs), kValidityMantissa);
  return encode_rate(grant.rate) << 41 | uint64_t{grant.guessed} << 40 | phase << 24 |
         validity << 16 | grant.epoch;
}

Grant decode_grant(uint64_t word) {
  Grant grant;
  grant.epoch = decode_epoch(word);
  grant.is_credit = is_credit(word);
  if (grant.is_credit) {
    grant.credit = decode_credit(word);
    return grant;
  }
  const uint64_t validity = decode_float(field(word, 16, 8), kValidityMantissa);
  grant.rate = decode_rate(word);
  grant.guessed = field(word, 40, 1) != 0;
  const uint64_t phase = field(word, 24, 16);
  grant.busy = phase == kBusy;
  grant.aligned = phase < kBusy;
  if (grant.aligned) grant.phase = Duration::from_ns(static_cast<int64_t>(phase) * kPhaseUnitNs);
  grant.validity = Duration::from_ns(static_cast<int64_t>(validity) * kValidityUnitNs);
  return grant;
}

uint64_t encode_demand(const Demand& demand) {
  if (demand.is_credit) return encode_credit(credit_units(demand.credit), demand.epoch);
  const uint64_t wanted = (demand.wanted + kWantedUnit - 1) / kWantedUnit;
  const uint64_t usable = encode_float(demand.usable.bps(), kUsableMantissa);
  return usable << 48 | (wanted & ((1U << kWantedBits) - 1)) << 16 | demand.epoch;
}

Demand decode_demand(uint64_t word) {
  Demand demand;
  demand.epoch = decode_epoch(word);
  demand.is_credit = is_credit(word);
  if (demand.is_credit) {
    demand.credit = decode_credit(word);
    return demand;
  }
  demand.usable = Rate::from_bps(decode_float(word >> 48, kUsableMantissa));
  demand.wanted = field(word, 16, kWantedBits) * kWantedUnit;
  return demand;
}

}  // namespace pacecar::wire
