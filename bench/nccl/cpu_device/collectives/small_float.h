// Floating-point types below 32 bits. They become floats to be computed with, and are rounded to
// the nearest, ties to even.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace pacecar::nccl::cpu {

// A sign, kExponentBits and kMantissaBits, as IEEE 754 has them. Without infinities (E4M3) the
// greatest exponent has numbers too, except for its last mantissa, which is NaN.
template <typename Bits, int kExponentBits, int kMantissaBits, bool kInfinities = true>
class SmallFloat {
 public:
  SmallFloat() = default;
  explicit SmallFloat(float value) : bits_(static_cast<Bits>(encode(value))) {}

  operator float() const {  // NOLINT: it is a float
    const uint32_t size = bits_ & kNoNumber;
    const uint32_t sign = uint32_t{bits_} << (31 - kExponentBits - kMantissaBits) & 1U << 31;
    uint32_t made = std::bit_cast<uint32_t>(std::bit_cast<float>(size << kDropped) *
                                            power_of_two(kFloatBias - kBias));
    if (kInfinities && size >= kInfinity) made = 0xffU << 23 | (size - kInfinity) << kDropped;
    if (!kInfinities && size == kNoNumber) made = 0x7fc00000;
    return std::bit_cast<float>(sign | made);
  }

 private:
  static constexpr int kFloatBias = 127;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kDropped = 23 - kMantissaBits;  // bits of a float's mantissa
  static constexpr uint32_t kInfinity = ((1U << kExponentBits) - 1) << kMantissaBits;
  static constexpr uint32_t kNoNumber = kInfinity | ((1U << kMantissaBits) - 1);
  static constexpr bool kSaturates = sizeof(Bits) == 1;
  static constexpr uint32_t kGreatest =
      kSaturates ? (kInfinities ? kInfinity : kNoNumber) - 1 : kInfinity;

  static constexpr float power_of_two(int exponent) {
    return std::bit_cast<float>(static_cast<uint32_t>(kFloatBias + exponent) << 23);
  }

  // Types of 8 bits are rounded to 16 bits first and end at their greatest finite number, as
  // NCCL's kernels do it.
  static uint32_t encode(float value) {
    if constexpr (kSaturates) value = SmallFloat<uint16_t, 5, 10>(value);
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 31 << (kExponentBits + kMantissaBits);
    const uint32_t size = bits & ~(1U << 31);
    if (size > 0xffU << 23) return sign | kNoNumber;
    // Added to a number whose last bit is the least that this type has, a small one is rounded.
    constexpr float kAlign = power_of_two(1 - kBias + kDropped);
    constexpr uint32_t kLeastNormal = static_cast<uint32_t>(kFloatBias + 1 - kBias) << 23;
    const uint32_t below_half = (1U << (kDropped - 1)) - 1 + (size >> kDropped & 1);
    const uint32_t code = size < kLeastNormal
                              ? std::bit_cast<uint32_t>(std::bit_cast<float>(size) + kAlign) -
                                    std::bit_cast<uint32_t>(kAlign)
                              : ((size + below_half) >> kDropped) -
                                    (static_cast<uint32_t>(kFloatBias - kBias) << kMantissaBits);
    return sign | std::min(code, kGreatest);
  }

  Bits bits_;
};

using Half = SmallFloat<uint16_t, 5, 10>;
using Bfloat16 = SmallFloat<uint16_t, 8, 7>;
using Float8E4M3 = SmallFloat<uint8_t, 4, 3, false>;
using Float8E5M2 = SmallFloat<uint8_t, 5, 2>;

}  // namespace pacecar::nccl::cpu
