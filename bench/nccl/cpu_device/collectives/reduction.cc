#include "bench/nccl/cpu_device/collectives/reduction.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "bench/nccl/cpu_device/collectives/small_float.h"

namespace pacecar::nccl::cpu {
namespace {

// Calls `body` with a number of the type; integers are unsigned.
template <typename Body>
void with_number(Type type, const Body& body) {
  switch (type) {
    case Type::kInt8:
    case Type::kUint8: return body(uint8_t{});
    case Type::kInt32:
    case Type::kUint32: return body(uint32_t{});
    case Type::kInt64:
    case Type::kUint64: return body(uint64_t{});
    case Type::kFloat16: return body(Half{});
    case Type::kFloat32: return body(float{});
    case Type::kFloat64: return body(double{});
    case Type::kBfloat16: return body(Bfloat16{});
    case Type::kFloat8E4M3: return body(Float8E4M3{});
    case Type::kFloat8E5M2: return body(Float8E5M2{});
  }
}

// An element at any address.
template <typename T>
T element(const void* data, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void set_element(void* data, size_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * sizeof(T), &value, sizeof(T));
}

template <typename T, typename Change>
void change_all(void* data, size_t elements, Change change) {
  for (size_t i = 0; i < elements; ++i) {
    set_element(data, i, static_cast<T>(change(element<T>(data, i))));
  }
}

template <typename T>
void reduce_as(Reduction reduction, uint64_t operand, void* accumulated, const void* added,
               size_t elements) {
  const auto all = [&](auto combine) {
    for (size_t i = 0; i < elements; ++i) {
      const T result{combine(element<T>(accumulated, i), element<T>(added, i))};
      set_element(accumulated, i, result);
    }
  };
  switch (reduction) {
    case Reduction::kProduct: return all([](T a, T b) { return static_cast<T>(a * b); });
    case Reduction::kMinMax:
      if constexpr (std::is_integral_v<T>) {
        const auto mask = static_cast<T>(operand);
        return all([mask](T a, T b) {
          return static_cast<T>(a ^ mask) < static_cast<T>(b ^ mask) ? a : b;
        });
      } else {
        using Computed = decltype(T{} + T{});  // float, of small ones
        if (operand & 1) {
          return all([](T a, T b) { return static_cast<T>(std::max<Computed>(a, b)); });
        }
        return all([](T a, T b) { return static_cast<T>(std::min<Computed>(a, b)); });
      }
    case Reduction::kSum:
    case Reduction::kPreMultipliedSum:
    case Reduction::kSumPostDivided: return all([](T a, T b) { return static_cast<T>(a + b); });
  }
}

template <typename T>
void divide_as(uint64_t divisor, void* data, size_t elements) {
  change_all<T>(data, elements, [by = static_cast<T>(divisor)](T value) { return value / by; });
}

}  // namespace

size_t size_of(Type type) {
  static constexpr std::array<uint8_t, 12> kSizes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kSizes.at(static_cast<size_t>(type));
}

void Arithmetic::reduce(void* accumulated, const void* added, size_t elements) const {
  with_number(type_, [&]<typename T>(T) {
    reduce_as<T>(reduction_, operand_, accumulated, added, elements);
  });
}

void Arithmetic::prepare(void* input, size_t elements) const {
  if (reduction_ != Reduction::kPreMultipliedSum) return;
  with_number(type_, [&]<typename T>(T) {
    const T scalar = element<T>(&operand_, 0);
    change_all<T>(input, elements, [scalar](T value) { return value * scalar; });
  });
}

void Arithmetic::finish(void* result, size_t elements) const {
  if (reduction_ != Reduction::kSumPostDivided) return;
  with_number(type_, [&]<typename T>(T) {
    if constexpr (std::is_integral_v<T>) {
      if (signed_) return divide_as<std::make_signed_t<T>>(operand_, result, elements);
      divide_as<T>(operand_, result, elements);
    }
  });
}

}  // namespace pacecar::nccl::cpu
