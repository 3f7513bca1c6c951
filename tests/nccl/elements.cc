#include "tests/nccl/elements.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace pacecar::nccl_test {
namespace {

constexpr std::array kTypes{
    ElementType{0, "int8", 1, false, 0, 0, 127},
    ElementType{1, "uint8", 1, false, 0, 0, 255},
    ElementType{2, "int32", 4, false, 0, 0, 1 << 20},
    ElementType{3, "uint32", 4, false, 0, 0, 1 << 20},
    ElementType{4, "int64", 8, false, 0, 0, int64_t{1} << 40},
    ElementType{5, "uint64", 8, false, 0, 0, int64_t{1} << 40},
    ElementType{6, "float16", 2, true, 5, 10, 1 << 11},
    ElementType{7, "float32", 4, true, 8, 23, 1 << 20},
    ElementType{8, "float64", 8, true, 11, 52, int64_t{1} << 40},
    ElementType{9, "bfloat16", 2, true, 8, 7, 1 << 8},
    ElementType{10, "float8e4m3", 1, true, 4, 3, 1 << 4},
    ElementType{11, "float8e5m2", 1, true, 5, 2, 1 << 3},
};

uint64_t mixed(uint64_t bits) {  // as splitmix64 ends
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  return bits ^ bits >> 31;
}

}  // namespace

std::span<const ElementType> element_types() { return kTypes; }

int64_t input(const ElementType& type, Operation operation, uint64_t salt, int rank, int ranks,
              size_t index) {
  const uint64_t bits = mixed(mixed(mixed(salt) + static_cast<uint64_t>(rank)) + index);
  // Products of three twos at most; sums, also of doubled elements, that the type has exactly.
  if (operation == Operation::kProduct) return rank < 3 ? 1 + static_cast<int64_t>(bits >> 63) : 1;
  const bool alone = operation == Operation::kMaximum || operation == Operation::kMinimum;
  const int64_t parts = alone ? 1 : operation == Operation::kScaledSum ? ranks * kScale : ranks;
  const auto values = static_cast<uint64_t>(type.greatest_exact / parts + 1);
  const auto value = static_cast<int64_t>((bits >> 20) % values);
  const bool has_sign = type.is_float || type.number % 2 == 0;
  return alone && has_sign ? value - type.greatest_exact / 2 : value;
}

bool is_exact(const ElementType& type, Operation operation, int ranks) {
  if (operation != Operation::kAverage || !type.is_float) return true;
  return std::has_single_bit(static_cast<unsigned>(ranks));  // each element is divided first
}

double combined(const ElementType& type, Operation operation, uint64_t salt, int ranks,
                size_t index) {
  int64_t result = input(type, operation, salt, 0, ranks, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const int64_t other = input(type, operation, salt, rank, ranks, index);
    switch (operation) {
      case Operation::kProduct: result *= other; break;
      case Operation::kMaximum: result = std::max(result, other); break;
      case Operation::kMinimum: result = std::min(result, other); break;
      default: result += other;
    }
  }
  if (operation == Operation::kScaledSum) return static_cast<double>(result * kScale);
  if (operation != Operation::kAverage) return static_cast<double>(result);
  return type.is_float ? static_cast<double>(result) / ranks : static_cast<double>(result / ranks);
}

void write_element(const ElementType& type, double value, void* to) {
  uint64_t bits = 0;
  if (!type.is_float) {
    bits = static_cast<uint64_t>(static_cast<int64_t>(value));
  } else if (value != 0) {
    int power = 0;
    const double fraction = std::frexp(std::fabs(value), &power);  // from 0.5; power of 1.0 is 1
    const int bias = (1 << (type.exponent_bits - 1)) - 1;
    const auto mantissa = static_cast<uint64_t>(std::ldexp(fraction, type.mantissa_bits + 1));
    const auto hidden = uint64_t{1} << type.mantissa_bits;
    bits = static_cast<uint64_t>(power - 1 + bias) << type.mantissa_bits | (mantissa & ~hidden);
    if (value < 0) bits |= uint64_t{1} << (type.exponent_bits + type.mantissa_bits);
  }
  std::memcpy(to, &bits, type.bytes);  // little endian, as all that NCCL runs on
}

}  // namespace pacecar::nccl_test
