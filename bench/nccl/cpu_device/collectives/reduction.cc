#include "bench/nccl/cpu_device/collectives/reduction.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "bench/nccl/cpu_device/collectives/small_floats.h"

namespace pacecar::nccl::cpu {
namespace {

constexpr size_t kBlock = 512;  // elements that are converted at a time

// An element at any address.
template <typename T>
struct Anywhere {
  using type __attribute__((aligned(1), may_alias)) = T;
};

template <typename T, typename Combine>
void combine_all(void* accumulated, const void* added, size_t elements, Combine combine) {
  auto* const to = static_cast<typename Anywhere<T>::type*>(accumulated);
  const auto* const from = static_cast<const typename Anywhere<T>::type*>(added);
  for (size_t i = 0; i < elements; ++i) to[i] = combine(T{to[i]}, T{from[i]});
}

template <typename T>
void reduce_as(Reduction reduction, uint64_t operand, void* accumulated, const void* added,
               size_t elements) {
  const auto all = [&](auto combine) { combine_all<T>(accumulated, added, elements, combine); };
  switch (reduction) {
    case Reduction::kProduct:
      return all([](T a, T b) { return static_cast<T>(a * b); });
    case Reduction::kMinMax:
      if constexpr (std::is_integral_v<T>) {
        const auto mask = static_cast<T>(operand);
        return all([mask](T a, T b) {
          return static_cast<T>(a ^ mask) < static_cast<T>(b ^ mask) ? a : b;
        });
      } else {
        if (operand & 1) return all([](T a, T b) { return std::max(a, b); });
        return all([](T a, T b) { return std::min(a, b); });
      }
    case Reduction::kSum:
    case Reduction::kPreMultipliedSum:
    case Reduction::kSumPostDivided:
      return all([](T a, T b) { return static_cast<T>(a + b); });
  }
}

template <typename T, typename Change>
void change_all(void* data, size_t elements, Change change) {
  auto* const all = static_cast<typename Anywhere<T>::type*>(data);
  for (size_t i = 0; i < elements; ++i) all[i] = change(T{all[i]});
}

template <typename T>
void multiply_as(uint64_t operand, void* data, size_t elements) {
  T scalar;
  std::memcpy(&scalar, &operand, sizeof(scalar));
  change_all<T>(data, elements, [scalar](T value) { return static_cast<T>(value * scalar); });
}

template <typename T>
void divide_as(uint64_t divisor, void* data, size_t elements) {
  const auto by = static_cast<T>(divisor);
  change_all<T>(data, elements, [by](T value) { return static_cast<T>(value / by); });
}

bool is_small_float(Type type) {
  return type == Type::kFloat16 || type == Type::kBfloat16 || type >= Type::kFloat8E4M3;
}

}  // namespace

size_t size_of(Type type) {
  static constexpr std::array<uint8_t, 12> kSizes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kSizes.at(static_cast<size_t>(type));
}

void Arithmetic::reduce(void* accumulated, const void* added, size_t elements) const {
  switch (type_) {
    case Type::kInt8:
    case Type::kUint8:
      return reduce_as<uint8_t>(reduction_, operand_, accumulated, added, elements);
    case Type::kInt32:
    case Type::kUint32:
      return reduce_as<uint32_t>(reduction_, operand_, accumulated, added, elements);
    case Type::kInt64:
    case Type::kUint64:
      return reduce_as<uint64_t>(reduction_, operand_, accumulated, added, elements);
    case Type::kFloat32:
      return reduce_as<float>(reduction_, operand_, accumulated, added, elements);
    case Type::kFloat64:
      return reduce_as<double>(reduction_, operand_, accumulated, added, elements);
    default:
      break;
  }
  std::array<float, kBlock> sum;
  std::array<float, kBlock> other;
  for (size_t begin = 0; begin < elements; begin += kBlock) {
    const size_t block = std::min(kBlock, elements - begin);
    char* const to = static_cast<char*>(accumulated) + begin * element_bytes();
    to_floats(type_, to, sum.data(), block);
    to_floats(type_, static_cast<const char*>(added) + begin * element_bytes(), other.data(),
              block);
    reduce_as<float>(reduction_, operand_, sum.data(), other.data(), block);
    from_floats(type_, sum.data(), to, block);
  }
}

void Arithmetic::prepare(void* input, size_t elements) const {
  if (reduction_ != Reduction::kPreMultipliedSum) return;
  switch (size_of(type_)) {
    case 8:
      return type_ == Type::kFloat64 ? multiply_as<double>(operand_, input, elements)
                                     : multiply_as<uint64_t>(operand_, input, elements);
    case 4:
      return type_ == Type::kFloat32 ? multiply_as<float>(operand_, input, elements)
                                     : multiply_as<uint32_t>(operand_, input, elements);
    default:
      break;
  }
  if (!is_small_float(type_)) return multiply_as<uint8_t>(operand_, input, elements);
  float scalar = 0;
  to_floats(type_, &operand_, &scalar, 1);
  std::array<float, kBlock> values;
  for (size_t begin = 0; begin < elements; begin += kBlock) {
    const size_t block = std::min(kBlock, elements - begin);
    char* const place = static_cast<char*>(input) + begin * element_bytes();
    to_floats(type_, place, values.data(), block);
    for (size_t i = 0; i < block; ++i) values[i] *= scalar;
    from_floats(type_, values.data(), place, block);
  }
}

void Arithmetic::finish(void* result, size_t elements) const {
  if (reduction_ != Reduction::kSumPostDivided) return;
  switch (size_of(type_)) {
    case 8:
      return signed_ ? divide_as<int64_t>(operand_, result, elements)
                     : divide_as<uint64_t>(operand_, result, elements);
    case 4:
      return signed_ ? divide_as<int32_t>(operand_, result, elements)
                     : divide_as<uint32_t>(operand_, result, elements);
    default:
      return signed_ ? divide_as<int8_t>(operand_, result, elements)
                     : divide_as<uint8_t>(operand_, result, elements);
  }
}

}  // namespace pacecar::nccl::cpu
