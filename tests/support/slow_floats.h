// NCCL's element types as numbers, slowly: a floating-point type of 8 or 16 bits is the list of all
// its numbers, in which the nearest is looked for. For tests of the fast conversions and
// arithmetic.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "bench/nccl/cpu_device/collectives/function_table.h"

namespace pacecar::test {

class SlowFloat {
 public:
  using Type = nccl::cpu::Type;

  static const SlowFloat& half() {
    static const SlowFloat made(5, 10, true, false);
    return made;
  }
  // nullptr: the type has 32 bits or more, or is an integer type.
  static const SlowFloat* of(Type type) {
    static const SlowFloat bfloat(8, 7, true, false);
    static const SlowFloat e4m3(4, 3, false, true);
    static const SlowFloat e5m2(5, 2, true, true);
    if (type == Type::kFloat16) return &half();
    if (type == Type::kBfloat16) return &bfloat;
    if (type == Type::kFloat8E4M3) return &e4m3;
    return type == Type::kFloat8E5M2 ? &e5m2 : nullptr;
  }

  uint32_t codes() const { return 2 * sign_; }
  double value(uint32_t code) const {
    const double size = values_[code & (sign_ - 1)];
    return code & sign_ ? -size : size;
  }
  // The finite numbers that are not negative have the codes below.
  uint32_t finite() const { return finite_; }
  double greatest() const { return values_[finite_ - 1]; }

  // The nearest code; of two equally near codes the even one. Beyond the greatest number: infinity,
  // or, for a type of 8 bits, the greatest number. A type of 8 bits rounds the nearest half.
  uint32_t nearest(double value) const {
    const uint32_t sign = std::signbit(value) ? sign_ : 0;
    if (std::isnan(value)) return sign | (sign_ - 1);
    if (saturates_) value = half().value(half().nearest(value));
    const double size = std::fabs(value);
    const auto end = values_.begin() + finite_;
    const auto above = std::upper_bound(values_.begin(), end, size);
    const auto low = static_cast<uint32_t>(above - values_.begin()) - 1;
    const long double down = static_cast<long double>(size) - values_[low];
    const long double up = static_cast<long double>(above_of(low)) - size;
    const bool rounds_up = up < down || (up == down && low % 2 != 0);
    const uint32_t code = low + (rounds_up ? 1 : 0);
    return sign | (code < finite_ || !saturates_ ? code : finite_ - 1);
  }

 private:
  SlowFloat(int exponent_bits, int mantissa_bits, bool infinities, bool saturates)
      : sign_(1U << (exponent_bits + mantissa_bits)), saturates_(saturates) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponents = 1 << exponent_bits;
    const int mantissas = 1 << mantissa_bits;
    for (int exponent = 0; exponent < exponents; ++exponent) {
      for (int mantissa = 0; mantissa < mantissas; ++mantissa) {
        const bool last = exponent + 1 == exponents;
        if (last && (infinities || mantissa + 1 == mantissas)) {
          values_.push_back(infinities && mantissa == 0 ? std::numeric_limits<double>::infinity()
                                                        : std::nan(""));
          continue;
        }
        ++finite_;
        const double fraction = static_cast<double>(mantissa) / mantissas;
        values_.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                        : std::ldexp(1 + fraction, exponent - bias));
      }
    }
  }

  // The number after the greatest continues the series of exponents.
  double above_of(uint32_t code) const {
    return code + 1 < finite_ ? values_[code + 1] : 2 * values_[code] - values_[code - 1];
  }

  uint32_t sign_;
  bool saturates_;
  uint32_t finite_ = 0;
  std::vector<double> values_;  // by code, without the sign
};

inline bool is_integer(nccl::cpu::Type type) { return type <= nccl::cpu::Type::kUint64; }
inline bool is_signed(nccl::cpu::Type type) { return static_cast<int>(type) % 2 == 0; }

// The element whose bits these are, and the bits of the element that is nearest. Integers are exact
// up to 2^53.
inline double number_of(nccl::cpu::Type type, uint64_t bits) {
  using nccl::cpu::Type;
  if (const SlowFloat* const small = SlowFloat::of(type)) {
    return small->value(static_cast<uint32_t>(bits) & (small->codes() - 1));
  }
  switch (type) {
    case Type::kInt8: return static_cast<int8_t>(bits);
    case Type::kUint8: return static_cast<uint8_t>(bits);
    case Type::kInt32: return static_cast<int32_t>(bits);
    case Type::kUint32: return static_cast<uint32_t>(bits);
    case Type::kInt64: return static_cast<double>(static_cast<int64_t>(bits));
    case Type::kUint64: return static_cast<double>(bits);
    case Type::kFloat32: return std::bit_cast<float>(static_cast<uint32_t>(bits));
    default: return std::bit_cast<double>(bits);
  }
}

inline uint64_t bits_of(nccl::cpu::Type type, double number) {
  using nccl::cpu::Type;
  if (const SlowFloat* const small = SlowFloat::of(type)) return small->nearest(number);
  switch (type) {
    case Type::kInt8:
    case Type::kUint8: return static_cast<uint8_t>(static_cast<int64_t>(number));
    case Type::kInt32:
    case Type::kUint32: return static_cast<uint32_t>(static_cast<int64_t>(number));
    case Type::kInt64:
    case Type::kUint64: return static_cast<uint64_t>(static_cast<int64_t>(number));
    case Type::kFloat32: return std::bit_cast<uint32_t>(static_cast<float>(number));
    default: return std::bit_cast<uint64_t>(number);
  }
}

// Elements at any address.
inline uint64_t load_bits(const char* from, size_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, bytes);
  return bits;
}
inline void store_bits(char* to, size_t bytes, uint64_t bits) { std::memcpy(to, &bits, bytes); }

}  // namespace pacecar::test
