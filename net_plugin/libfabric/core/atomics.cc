#include "net_plugin/libfabric/core/atomics.h"

#include <array>
#include <complex>
#include <cstring>
#include <type_traits>

namespace pacecar::fabric {
namespace {

template <typename T>
inline constexpr bool kComplex = false;
template <typename T>
inline constexpr bool kComplex<std::complex<T>> = true;

template <typename T>
bool truth(const T& value) {
  return value != T{};
}

constexpr bool is_compare(AtomicOp op) { return op >= AtomicOp::kCswap; }

constexpr bool is_bitwise(AtomicOp op) {
  return op == AtomicOp::kBor || op == AtomicOp::kBand || op == AtomicOp::kBxor ||
         op == AtomicOp::kMswap;
}

constexpr bool needs_order(AtomicOp op) {
  return op == AtomicOp::kMin || op == AtomicOp::kMax ||
         (op >= AtomicOp::kCswapLe && op <= AtomicOp::kCswapGt);
}

template <typename T>
T computed(AtomicOp op, const T& old, const T& operand, const T& comparand) {
  // Unsigned arithmetic wraps around, also where that of the type itself must not.
  if constexpr (std::is_integral_v<T>) {
    using Word = std::make_unsigned_t<std::common_type_t<T, int>>;
    const auto a = static_cast<Word>(old);
    const auto b = static_cast<Word>(operand);
    if (op == AtomicOp::kSum) return static_cast<T>(a + b);
    if (op == AtomicOp::kProd) return static_cast<T>(a * b);
    if (op == AtomicOp::kBor) return static_cast<T>(old | operand);
    if (op == AtomicOp::kBand) return static_cast<T>(old & operand);
    if (op == AtomicOp::kBxor) return static_cast<T>(old ^ operand);
    if (op == AtomicOp::kMswap) return static_cast<T>((operand & comparand) | (old & ~comparand));
  } else {
    if (op == AtomicOp::kSum) return old + operand;
    if (op == AtomicOp::kProd) return old * operand;
  }
  if constexpr (!kComplex<T>) {
    if (op == AtomicOp::kMin) return operand < old ? operand : old;
    if (op == AtomicOp::kMax) return operand > old ? operand : old;
    if (op == AtomicOp::kCswapLe) return comparand <= old ? operand : old;
    if (op == AtomicOp::kCswapLt) return comparand < old ? operand : old;
    if (op == AtomicOp::kCswapGe) return comparand >= old ? operand : old;
    if (op == AtomicOp::kCswapGt) return comparand > old ? operand : old;
  }
  switch (op) {
    case AtomicOp::kLor: return static_cast<T>(truth(old) || truth(operand) ? 1 : 0);
    case AtomicOp::kLand: return static_cast<T>(truth(old) && truth(operand) ? 1 : 0);
    case AtomicOp::kLxor: return static_cast<T>(truth(old) != truth(operand) ? 1 : 0);
    case AtomicOp::kWrite: return operand;
    case AtomicOp::kCswap: return comparand == old ? operand : old;
    case AtomicOp::kCswapNe: return comparand != old ? operand : old;
    default: return old;  // a read
  }
}

template <typename T>
void apply(AtomicOp op, size_t count, uint8_t* target, const uint8_t* operands,
           const uint8_t* comparands, uint8_t* result) {
  for (size_t i = 0; i < count; ++i) {
    T old{};
    T operand{};
    T comparand{};
    std::memcpy(&old, target + i * sizeof(T), sizeof(T));
    if (operands != nullptr) std::memcpy(&operand, operands + i * sizeof(T), sizeof(T));
    if (comparands != nullptr) std::memcpy(&comparand, comparands + i * sizeof(T), sizeof(T));
    const T value = computed(op, old, operand, comparand);
    // What stays as it was is not stored: the owner may write there now, or nobody may.
    if (op != AtomicOp::kRead && std::memcmp(&value, &old, sizeof(T)) != 0) {
      std::memcpy(target + i * sizeof(T), &value, sizeof(T));
    }
    if (result != nullptr) std::memcpy(result + i * sizeof(T), &old, sizeof(T));
  }
}

struct TypeFacts {
  size_t bytes;
  bool integral;
  bool complex;
  void (*apply)(AtomicOp, size_t, uint8_t*, const uint8_t*, const uint8_t*, uint8_t*);
};

template <typename... T>
constexpr std::array<TypeFacts, sizeof...(T)> facts() {
  return {TypeFacts{sizeof(T), std::is_integral_v<T>, kComplex<T>, &apply<T>}...};
}

// As fi_datatype numbers them.
constexpr std::array<TypeFacts, kDatatypes> kTypes =
    facts<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t, float, double,
          std::complex<float>, std::complex<double>, long double, std::complex<long double>>();

}  // namespace

size_t datatype_bytes(uint8_t datatype) {
  return datatype < kTypes.size() ? kTypes[datatype].bytes : 0;
}

bool atomic_valid(uint8_t operation, uint8_t datatype, bool fetches, bool compares) {
  if (operation >= kAtomicOps || datatype >= kTypes.size()) return false;
  const auto op = static_cast<AtomicOp>(operation);
  const TypeFacts& type = kTypes[datatype];
  if (is_compare(op) != compares) return false;
  if (op == AtomicOp::kRead && !fetches) return false;
  return (!is_bitwise(op) || type.integral) && (!needs_order(op) || !type.complex);
}

void apply_atomic(uint8_t operation, uint8_t datatype, size_t count, uint8_t* target,
                  const uint8_t* operands, const uint8_t* comparands, uint8_t* result) {
  kTypes[datatype].apply(static_cast<AtomicOp>(operation), count, target, operands, comparands,
                         result);
}

}  // namespace pacecar::fabric
