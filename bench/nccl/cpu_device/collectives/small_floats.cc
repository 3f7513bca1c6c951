#include "bench/nccl/cpu_device/collectives/small_floats.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pacecar::nccl::cpu {
namespace {

// A sign, `exponent_bits` and `mantissa_bits`, as IEEE 754 has them; without infinities (E4M3) the
// greatest exponent is one of numbers too, but for its last mantissa, which is no number.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool infinities;
  float greatest;
};
constexpr Format kHalf{5, 10, true, 65504};
constexpr Format kE4M3{4, 3, false, 448};
constexpr Format kE5M2{5, 2, true, 57344};

float decode(const Format& format, uint32_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t mantissa = bits & ((1U << format.mantissa_bits) - 1);
  const uint32_t last_exponent = (1U << format.exponent_bits) - 1;
  const uint32_t exponent = bits >> format.mantissa_bits & last_exponent;
  const float sign = bits >> (format.mantissa_bits + format.exponent_bits) & 1 ? -1.0F : 1.0F;
  const bool special = exponent == last_exponent &&
                       (format.infinities || mantissa == (1U << format.mantissa_bits) - 1);
  if (special && mantissa != 0) return std::numeric_limits<float>::quiet_NaN();
  if (special) return sign * std::numeric_limits<float>::infinity();
  const uint32_t whole = exponent == 0 ? mantissa : mantissa | 1U << format.mantissa_bits;
  const int power = std::max<int>(static_cast<int>(exponent), 1) - bias - format.mantissa_bits;
  return sign * std::ldexp(static_cast<float>(whole), power);
}

// What is too great becomes infinite, or the greatest number when the format `saturates`.
uint32_t encode(const Format& format, float value, bool saturates) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t sign =
      std::signbit(value) ? 1U << (format.exponent_bits + format.mantissa_bits) : 0;
  const uint32_t infinite = ((1U << format.exponent_bits) - 1) << format.mantissa_bits;
  if (std::isnan(value)) return sign | infinite | ((1U << format.mantissa_bits) - 1);
  const float size = std::fabs(value);
  int power = 0;  // size = fraction x 2^power, the fraction from 0.5
  std::frexp(size, &power);
  // The least difference of numbers of this size.
  const int unit = std::max(power - 1, 1 - bias) - format.mantissa_bits;
  const float rounded = std::ldexp(std::nearbyint(std::ldexp(size, -unit)), unit);
  if (std::isinf(size) || rounded > format.greatest) {
    if (!saturates) return sign | infinite;
    return encode(format, format.greatest, false) | sign;
  }
  if (rounded == 0) return sign;
  std::frexp(rounded, &power);
  const int exponent = std::max(power - 1 + bias, 0);
  const int scale = exponent == 0 ? 1 - bias : exponent - bias;
  const auto whole = static_cast<uint32_t>(std::ldexp(rounded, format.mantissa_bits - scale));
  const uint32_t mantissa = whole & ((1U << format.mantissa_bits) - 1);
  const bool normal = whole >> format.mantissa_bits != 0;
  return sign |
         (normal ? static_cast<uint32_t>(std::max(exponent, 1)) << format.mantissa_bits : 0) |
         mantissa;
}

const std::array<float, 1 << 16>& half_values() {
  static const auto& values = *[] {
    auto* const made = new std::array<float, 1 << 16>;
    for (uint32_t bits = 0; bits < made->size(); ++bits) (*made)[bits] = decode(kHalf, bits);
    return made;
  }();
  return values;
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) size_t convert_fast(const uint16_t* from, float* to,
                                                        size_t elements) {
  size_t i = 0;
  for (; i + 8 <= elements; i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(bits));
  }
  return i;
}
__attribute__((target("avx,f16c"))) size_t convert_fast(const float* from, uint16_t* to,
                                                        size_t elements) {
  size_t i = 0;
  for (; i + 8 <= elements; i += 8) {
    const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), bits);
  }
  return i;
}
const bool fast = __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx");
#else
size_t convert_fast(const uint16_t*, float*, size_t) { return 0; }
size_t convert_fast(const float*, uint16_t*, size_t) { return 0; }
constexpr bool fast = false;
#endif

// Elements may lie at any address.
template <typename T>
T element(const void* from, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void set_element(void* to, size_t index, T value) {
  std::memcpy(static_cast<char*>(to) + index * sizeof(T), &value, sizeof(T));
}

void halves_to_floats(const void* from, float* to, size_t elements) {
  size_t i = fast ? convert_fast(static_cast<const uint16_t*>(from), to, elements) : 0;
  for (; i < elements; ++i) to[i] = half_values()[element<uint16_t>(from, i)];
}

void floats_to_halves(const float* from, void* to, size_t elements) {
  size_t i = fast ? convert_fast(from, static_cast<uint16_t*>(to), elements) : 0;
  for (; i < elements; ++i) {
    set_element(to, i, static_cast<uint16_t>(encode(kHalf, from[i], false)));
  }
}

// An 8-bit format: the value of each of its numbers, and the number next to each half.
struct Table {
  explicit Table(const Format& format) {
    for (uint32_t bits = 0; bits < values.size(); ++bits) values[bits] = decode(format, bits);
    for (uint32_t half = 0; half < nearest.size(); ++half) {
      nearest[half] = static_cast<uint8_t>(encode(format, half_values()[half], true));
    }
  }
  std::array<float, 1 << 8> values;
  std::array<uint8_t, 1 << 16> nearest;
};

const Table& table_of(Type type) {
  static const Table& e4m3 = *new Table(kE4M3);
  static const Table& e5m2 = *new Table(kE5M2);
  return type == Type::kFloat8E4M3 ? e4m3 : e5m2;
}

}  // namespace

void to_floats(Type type, const void* from, float* to, size_t elements) {
  if (type == Type::kFloat16) return halves_to_floats(from, to, elements);
  if (type == Type::kBfloat16) {
    for (size_t i = 0; i < elements; ++i) {
      to[i] = std::bit_cast<float>(uint32_t{element<uint16_t>(from, i)} << 16);
    }
    return;
  }
  const Table& table = table_of(type);
  for (size_t i = 0; i < elements; ++i) to[i] = table.values[element<uint8_t>(from, i)];
}

void from_floats(Type type, const float* from, void* to, size_t elements) {
  if (type == Type::kFloat16) return floats_to_halves(from, to, elements);
  if (type == Type::kBfloat16) {
    for (size_t i = 0; i < elements; ++i) {
      const auto bits = std::bit_cast<uint32_t>(from[i]);
      const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
      const bool number = (bits & 0x7fffffff) <= 0x7f800000;
      set_element(to, i, static_cast<uint16_t>((number ? rounded : bits | 1U << 22) >> 16));
    }
    return;
  }
  const Table& table = table_of(type);
  constexpr size_t kBlock = 256;
  std::array<uint16_t, kBlock> halves;
  for (size_t begin = 0; begin < elements; begin += kBlock) {
    const size_t block = std::min(kBlock, elements - begin);
    floats_to_halves(from + begin, halves.data(), block);
    for (size_t i = 0; i < block; ++i) set_element(to, begin + i, table.nearest[halves[i]]);
  }
}

}  // namespace pacecar::nccl::cpu
