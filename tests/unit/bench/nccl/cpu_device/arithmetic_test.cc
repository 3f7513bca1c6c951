// Numbers of 8 and 16 bits, and reductions of all types, against a reference that computes one at a
// time.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "bench/nccl/cpu_device/collectives/reduction.h"
#include "bench/nccl/cpu_device/collectives/small_float.h"
#include "tests/support/slow_floats.h"

namespace pacecar::arithmetic_test {
namespace {

using nccl::cpu::Arithmetic;
using nccl::cpu::Reduction;
using nccl::cpu::size_of;
using nccl::cpu::Type;
using test::bits_of;
using test::load_bits;
using test::number_of;
using test::SlowFloat;
using test::store_bits;

constexpr std::array kSmallTypes{Type::kFloat16, Type::kBfloat16, Type::kFloat8E4M3,
                                 Type::kFloat8E5M2};
constexpr std::array kTypes{Type::kInt8,    Type::kUint8,    Type::kInt32,      Type::kUint32,
                            Type::kInt64,   Type::kUint64,   Type::kFloat16,    Type::kFloat32,
                            Type::kFloat64, Type::kBfloat16, Type::kFloat8E4M3, Type::kFloat8E5M2};

// --- numbers of 8 and 16 bits ---

template <typename T>
void to_floats_of(const void* from, float* to, size_t elements) {
  for (size_t i = 0; i < elements; ++i) {
    T code;
    std::memcpy(&code, static_cast<const char*>(from) + i * sizeof(T), sizeof(T));
    to[i] = code;
  }
}
template <typename T>
void from_floats_of(const float* from, void* to, size_t elements) {
  for (size_t i = 0; i < elements; ++i) {
    const T code(from[i]);
    std::memcpy(static_cast<char*>(to) + i * sizeof(T), &code, sizeof(T));
  }
}

void to_floats(Type type, const void* from, float* to, size_t elements) {
  if (type == Type::kFloat16) return to_floats_of<nccl::cpu::Half>(from, to, elements);
  if (type == Type::kBfloat16) return to_floats_of<nccl::cpu::Bfloat16>(from, to, elements);
  if (type == Type::kFloat8E4M3) return to_floats_of<nccl::cpu::Float8E4M3>(from, to, elements);
  to_floats_of<nccl::cpu::Float8E5M2>(from, to, elements);
}

void from_floats(Type type, const float* from, void* to, size_t elements) {
  if (type == Type::kFloat16) return from_floats_of<nccl::cpu::Half>(from, to, elements);
  if (type == Type::kBfloat16) return from_floats_of<nccl::cpu::Bfloat16>(from, to, elements);
  if (type == Type::kFloat8E4M3) return from_floats_of<nccl::cpu::Float8E4M3>(from, to, elements);
  from_floats_of<nccl::cpu::Float8E5M2>(from, to, elements);
}

std::vector<char> all_codes(Type type) {
  const uint32_t codes = SlowFloat::of(type)->codes();
  std::vector<char> all(codes * size_of(type));
  for (uint32_t code = 0; code < codes; ++code) {
    store_bits(all.data() + code * size_of(type), size_of(type), code);
  }
  return all;
}

uint32_t encoded(Type type, float value) {
  std::array<char, 8> to{};
  from_floats(type, &value, to.data(), 1);
  return static_cast<uint32_t>(load_bits(to.data(), size_of(type)));
}

bool is_nan(Type type, uint64_t bits) { return std::isnan(number_of(type, bits)); }

bool same_float(double one, double other) {
  return std::isnan(one) ? std::isnan(other)
                         : one == other && std::signbit(one) == std::signbit(other);
}

// Together, as a vector does it, and each alone, as the rest behind a vector's last element.
TEST(SmallFloats, DecodeEveryCode) {
  for (const Type type : kSmallTypes) {
    const SlowFloat& slow = *SlowFloat::of(type);
    const std::vector<char> codes = all_codes(type);
    std::vector<float> together(slow.codes());
    to_floats(type, codes.data(), together.data(), slow.codes());
    for (uint32_t code = 0; code < slow.codes(); ++code) {
      float alone = 0;
      to_floats(type, codes.data() + code * size_of(type), &alone, 1);
      ASSERT_TRUE(same_float(together[code], slow.value(code)))
          << static_cast<int>(type) << ' ' << code;
      ASSERT_TRUE(same_float(alone, slow.value(code))) << static_cast<int>(type) << ' ' << code;
    }
  }
}

TEST(SmallFloats, EncodeBackWhatTheyDecode) {
  for (const Type type : kSmallTypes) {
    const SlowFloat& slow = *SlowFloat::of(type);
    const std::vector<char> codes = all_codes(type);
    std::vector<float> values(slow.codes());
    to_floats(type, codes.data(), values.data(), slow.codes());
    std::vector<char> back(codes.size());
    from_floats(type, values.data(), back.data(), slow.codes());
    for (uint32_t code = 0; code < slow.codes(); ++code) {
      const auto together =
          static_cast<uint32_t>(load_bits(back.data() + code * size_of(type), size_of(type)));
      const uint32_t alone = encoded(type, values[code]);
      if (std::isnan(values[code])) {
        ASSERT_TRUE(is_nan(type, together)) << code;
        ASSERT_TRUE(is_nan(type, alone)) << code;
        continue;
      }
      // Of 8 bits, the infinite becomes the greatest.
      const bool saturates = std::isinf(values[code]) && size_of(type) == 1;
      const uint32_t expected = saturates ? slow.nearest(values[code]) : code;
      ASSERT_EQ(together, expected);
      ASSERT_EQ(alone, expected);
    }
  }
}

// Where it is decided: halfway between two neighbours, and next to it.
TEST(SmallFloats, RoundToTheNearestAndHalfwayToTheEven) {
  for (const Type type : kSmallTypes) {
    const SlowFloat& slow = *SlowFloat::of(type);
    std::vector<float> values;
    for (uint32_t code = 0; code < slow.finite(); ++code) {
      const double next = code + 1 < slow.finite() ? slow.value(code + 1)
                                                   : 2 * slow.value(code) - slow.value(code - 1);
      const auto middle = static_cast<float>((slow.value(code) + next) / 2);
      for (const float value : {std::nextafter(middle, 0.0F), middle,
                                std::nextafter(middle, std::numeric_limits<float>::infinity())}) {
        values.push_back(value);
        values.push_back(-value);
      }
    }
    std::vector<char> together(values.size() * size_of(type));
    from_floats(type, values.data(), together.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t expected = slow.nearest(values[i]);
      ASSERT_EQ(load_bits(together.data() + i * size_of(type), size_of(type)), expected)
          << values[i];
      ASSERT_EQ(encoded(type, values[i]), expected) << values[i];
    }
  }
}

TEST(SmallFloats, OfEightBitsEndAtTheirGreatestNumber) {
  const float infinite = std::numeric_limits<float>::infinity();
  for (const auto& [type, greatest] :
       {std::pair{Type::kFloat8E4M3, 448.0F}, std::pair{Type::kFloat8E5M2, 57344.0F}}) {
    for (const float great : {greatest, greatest * 1.2F, 65504.0F, 1e30F, infinite}) {
      EXPECT_EQ(number_of(type, encoded(type, great)), greatest) << great;
      EXPECT_EQ(number_of(type, encoded(type, -great)), -greatest) << great;
    }
  }
}

TEST(SmallFloats, OfSixteenBitsBecomeInfinite) {
  EXPECT_EQ(encoded(Type::kFloat16, 65504), 0x7bffU);
  EXPECT_EQ(encoded(Type::kFloat16, 65519.99F), 0x7bffU);
  EXPECT_EQ(encoded(Type::kFloat16, 65520), 0x7c00U);
  EXPECT_EQ(encoded(Type::kFloat16, -FLT_MAX), 0xfc00U);
  EXPECT_EQ(encoded(Type::kBfloat16, FLT_MAX), 0x7f80U);
  EXPECT_EQ(encoded(Type::kBfloat16, -std::numeric_limits<float>::infinity()), 0xff80U);
}

TEST(SmallFloats, KeepWhatIsNoNumber) {
  for (const uint32_t bits : {0x7fc00000U, 0xffc00000U, 0x7f800001U, 0x7fffffffU, 0xff800001U}) {
    std::vector<float> values(9, std::bit_cast<float>(bits));  // a vector, and one more
    for (const Type type : kSmallTypes) {
      std::vector<char> made(9 * size_of(type));
      from_floats(type, values.data(), made.data(), 9);
      for (size_t i = 0; i < 9; ++i) {
        EXPECT_TRUE(is_nan(type, load_bits(made.data() + i * size_of(type), size_of(type))));
      }
    }
  }
}

TEST(SmallFloats, KeepTheSignOfZeroAndOfWhatIsTooSmall) {
  for (const Type type : kSmallTypes) {
    const uint32_t minus = SlowFloat::of(type)->codes() / 2;
    EXPECT_EQ(encoded(type, 0), 0U);
    EXPECT_EQ(encoded(type, -0.0F), minus);
    if (type == Type::kBfloat16) continue;  // has the exponents of 32 bits
    EXPECT_EQ(encoded(type, 1e-30F), 0U);
    EXPECT_EQ(encoded(type, -1e-30F), minus);
  }
}

RC_GTEST_PROP(SmallFloatsProperty, AnyFloatsAreEncodedAsTheNearest, ()) {
  const auto type = *rc::gen::elementOf(std::vector<Type>(kSmallTypes.begin(), kSmallTypes.end()));
  std::mt19937_64 random(*rc::gen::arbitrary<uint64_t>());
  const auto elements = *rc::gen::inRange<size_t>(0, 600);
  const auto offset = *rc::gen::inRange<size_t>(0, 4);
  std::vector<float> values(elements);
  for (float& value : values) {
    auto bits = static_cast<uint32_t>(random());
    // Half of them near the type's own range.
    if (bits & 1) bits = (bits & 0x81ffffff) | (100 + static_cast<uint32_t>(random() % 48)) << 23;
    value = std::bit_cast<float>(bits);
  }
  std::vector<char> made(offset + elements * size_of(type) + 1, 'x');
  from_floats(type, values.data(), made.data() + offset, elements);
  for (size_t i = 0; i < elements; ++i) {
    const uint64_t bits = load_bits(made.data() + offset + i * size_of(type), size_of(type));
    const bool good = std::isnan(values[i]) ? is_nan(type, bits)
                                            : bits == SlowFloat::of(type)->nearest(values[i]);
    RC_ASSERT(good);
  }
  RC_ASSERT(made.back() == 'x');
  std::vector<float> back(elements);
  to_floats(type, made.data() + offset, back.data(), elements);
  for (size_t i = 0; i < elements; ++i) {
    const uint64_t bits = load_bits(made.data() + offset + i * size_of(type), size_of(type));
    RC_ASSERT(same_float(back[i], number_of(type, bits)));
  }
}

// --- reductions ---

uint64_t mask_of(Type type) { return ~uint64_t{0} >> (64 - 8 * size_of(type)); }

uint64_t reduced(Type type, Reduction reduction, uint64_t operand, uint64_t a, uint64_t b) {
  const uint64_t mask = mask_of(type);
  if (test::is_integer(type)) {
    if (reduction == Reduction::kProduct) return a * b & mask;
    if (reduction != Reduction::kMinMax) return (a + b) & mask;
    return ((a ^ operand) & mask) < ((b ^ operand) & mask) ? a : b;
  }
  const double x = number_of(type, a);
  const double y = number_of(type, b);
  if (reduction == Reduction::kProduct) return bits_of(type, x * y);
  if (reduction != Reduction::kMinMax) return bits_of(type, x + y);
  return bits_of(type, operand & 1 ? std::fmax(x, y) : std::fmin(x, y));
}

bool same(Type type, uint64_t one, uint64_t other) {
  if (one == other) return true;
  if (test::is_integer(type)) return false;
  const double x = number_of(type, one);
  const double y = number_of(type, other);
  return (std::isnan(x) && std::isnan(y)) || (x == 0 && y == 0);
}

// Elements behind a few bytes, with guard bytes around.
class Elements {
 public:
  Elements(Type type, size_t count, size_t offset)
      : type_(type),
        count_(count),
        offset_(offset),
        bytes_(offset + count * size_of(type) + kBehind, kUntouched) {}

  char* data() { return bytes_.data() + offset_; }
  uint64_t at(size_t i) const {
    return load_bits(bytes_.data() + offset_ + i * size_of(type_), size_of(type_));
  }
  void set(size_t i, uint64_t bits) {
    store_bits(data() + i * size_of(type_), size_of(type_), bits);
  }
  // Random bits, but of floats only numbers whose sums and products are neither infinite nor
  // rounded twice; numbers of 8 bits may be any, because they saturate.
  void fill(std::mt19937_64& random) {
    for (size_t i = 0; i < count_; ++i) {
      uint64_t bits = random() & mask_of(type_);
      while (!test::is_integer(type_) && !ordinary(bits)) bits = random() & mask_of(type_);
      set(i, bits);
    }
  }
  bool surroundings_untouched() const {
    const auto untouched = [](char one) { return one == kUntouched; };
    return std::all_of(bytes_.begin(), bytes_.begin() + static_cast<long>(offset_), untouched) &&
           std::all_of(bytes_.end() - kBehind, bytes_.end(), untouched);
  }

 private:
  static constexpr long kBehind = 40;
  static constexpr char kUntouched = 'x';

  bool ordinary(uint64_t bits) const {
    const double size = std::fabs(number_of(type_, bits));
    if (std::isnan(size)) return false;
    return SlowFloat::of(type_) != nullptr && type_ != Type::kBfloat16
               ? true
               : size == 0 || (size > 1e-15 && size < 1e15);
  }

  Type type_;
  size_t count_;
  size_t offset_;
  std::vector<char> bytes_;
};

std::string name(Type type, Reduction reduction, size_t elements) {
  return "type " + std::to_string(static_cast<int>(type)) + ", reduction " +
         std::to_string(static_cast<int>(reduction)) + ", " + std::to_string(elements);
}

void check_reduce(Type type, Reduction reduction, uint64_t operand, size_t elements,
                  std::mt19937_64& random) {
  Elements to(type, elements, random() % 16);
  Elements added(type, elements, random() % 16);
  to.fill(random);
  added.fill(random);
  const Elements before = to;
  const Arithmetic arithmetic(reduction, type, operand, test::is_signed(type));
  arithmetic.reduce(to.data(), added.data(), elements);
  for (size_t i = 0; i < elements; ++i) {
    const uint64_t expected = reduced(type, reduction, operand, before.at(i), added.at(i));
    ASSERT_TRUE(same(type, to.at(i), expected))
        << name(type, reduction, elements) << ": " << i << ' ' << before.at(i) << ' ' << added.at(i)
        << " gave " << to.at(i) << " instead of " << expected;
  }
  EXPECT_TRUE(to.surroundings_untouched()) << name(type, reduction, elements);
  EXPECT_TRUE(added.surroundings_untouched()) << name(type, reduction, elements);
}

constexpr std::array<size_t, 19> kLengths{0,  1,  2,   7,   8,   9,   15,  16,   17,  31,
                                          33, 63, 127, 255, 511, 512, 513, 1023, 1025};

TEST(Arithmetic, ReducesEveryTypeAtAnyAddressAndLength) {
  std::mt19937_64 random(1);
  for (const Type type : kTypes) {
    for (const Reduction reduction : {Reduction::kSum, Reduction::kProduct,
                                      Reduction::kPreMultipliedSum, Reduction::kSumPostDivided}) {
      for (const size_t length : kLengths) check_reduce(type, reduction, 3, length, random);
    }
    for (const uint64_t operand : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, random()}) {
      for (const size_t length : kLengths) {
        check_reduce(type, Reduction::kMinMax, operand, length, random);
      }
    }
  }
}

// The operands that NCCL's host code gives the two reductions of integers.
TEST(Arithmetic, FindsMinimumAndMaximumOfSignedAndUnsignedIntegers) {
  for (const Type type : kTypes) {
    if (!test::is_integer(type)) continue;
    const uint64_t least = test::is_signed(type) ? uint64_t{1} << (8 * size_of(type) - 1) : 0;
    const std::array<double, 4> numbers{0, 100, test::is_signed(type) ? -100.0 : 200.0, 1};
    for (const double a : numbers) {
      for (const double b : numbers) {
        uint64_t bits = bits_of(type, a);
        const uint64_t added = bits_of(type, b);
        Arithmetic(Reduction::kMinMax, type, least, false).reduce(&bits, &added, 1);
        EXPECT_EQ(number_of(type, bits), std::min(a, b));
        bits = bits_of(type, a);
        Arithmetic(Reduction::kMinMax, type, ~least, false).reduce(&bits, &added, 1);
        EXPECT_EQ(number_of(type, bits), std::max(a, b));
      }
    }
  }
}

TEST(Arithmetic, PreparesOnlyForThePreMultipliedSum) {
  std::mt19937_64 random(2);
  for (const Type type : kTypes) {
    for (const size_t length : kLengths) {
      Elements elements(type, length, random() % 16);
      elements.fill(random);
      const Elements before = elements;
      const uint64_t operand = bits_of(type, 3) | (random() & ~mask_of(type));
      for (const Reduction reduction : {Reduction::kSum, Reduction::kSumPostDivided}) {
        Arithmetic(reduction, type, 3, true).prepare(elements.data(), length);
      }
      for (size_t i = 0; i < length; ++i) ASSERT_EQ(elements.at(i), before.at(i));
      Arithmetic(Reduction::kPreMultipliedSum, type, operand, true)
          .prepare(elements.data(), length);
      for (size_t i = 0; i < length; ++i) {
        const uint64_t expected =
            reduced(type, Reduction::kProduct, 0, before.at(i), bits_of(type, 3));
        ASSERT_TRUE(same(type, elements.at(i), expected)) << static_cast<int>(type) << ' ' << i;
      }
      EXPECT_TRUE(elements.surroundings_untouched());
    }
  }
}

TEST(Arithmetic, FinishesOnlyTheDividedSum) {
  std::mt19937_64 random(3);
  for (const Type type : kTypes) {
    if (!test::is_integer(type)) continue;
    for (const size_t length : kLengths) {
      Elements elements(type, length, random() % 16);
      elements.fill(random);
      const Elements before = elements;
      for (const Reduction reduction : {Reduction::kSum, Reduction::kPreMultipliedSum}) {
        Arithmetic(reduction, type, 3, true).finish(elements.data(), length);
      }
      for (size_t i = 0; i < length; ++i) ASSERT_EQ(elements.at(i), before.at(i));
      Arithmetic(Reduction::kSumPostDivided, type, 3, test::is_signed(type))
          .finish(elements.data(), length);
      for (size_t i = 0; i < length; ++i) {
        const uint64_t bits = before.at(i);
        const auto value =
            static_cast<int64_t>(bits << (64 - 8 * size_of(type))) >> (64 - 8 * size_of(type));
        const uint64_t expected =
            test::is_signed(type) ? static_cast<uint64_t>(value / 3) : bits / 3;
        ASSERT_EQ(elements.at(i), expected & mask_of(type)) << static_cast<int>(type);
      }
      EXPECT_TRUE(elements.surroundings_untouched());
    }
  }
}

TEST(Arithmetic, KnowsTheSizes) {
  constexpr std::array<size_t, 12> kSizes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  for (size_t i = 0; i < kTypes.size(); ++i) {
    EXPECT_EQ(size_of(kTypes[i]), kSizes[i]);
    EXPECT_EQ(Arithmetic(Reduction::kSum, kTypes[i], 0, false).element_bytes(), kSizes[i]);
  }
}

}  // namespace
}  // namespace pacecar::arithmetic_test
