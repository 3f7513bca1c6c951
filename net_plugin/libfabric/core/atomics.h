// libfabric's atomic operations on memory, by libfabric's numbers. They are atomic with respect to
// each other, as one thread at a time calls them, but not to the CPU's atomic instructions. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pacecar::fabric {

// As fi_op numbers them.
enum class AtomicOp : uint8_t {
  kMin,
  kMax,
  kSum,
  kProd,
  kLor,
  kLand,
  kBor,
  kBand,
  kLxor,
  kBxor,
  kRead,
  kWrite,
  kCswap,
  kCswapNe,
  kCswapLe,
  kCswapLt,
  kCswapGe,
  kCswapGt,
  kMswap,
};
inline constexpr uint8_t kAtomicOps = 19;
inline constexpr uint8_t kDatatypes = 14;  // of fi_datatype: integers, floating point, complex

size_t datatype_bytes(uint8_t datatype);  // Size of one element; 0: unknown datatype.

// Whether it is defined for the datatype, as fi_atomic, fi_fetch_atomic or fi_compare_atomic.
bool atomic_valid(uint8_t operation, uint8_t datatype, bool fetches, bool compares);

// Applies a valid operation to `count` elements at `target`. Compare operations change an element
// only where the comparison with its comparand holds. `result` gets the old values, unless it is
// null. No pointer needs to be aligned.
void apply_atomic(uint8_t operation, uint8_t datatype, size_t count, uint8_t* target,
                  const uint8_t* operands, const uint8_t* comparands, uint8_t* result);

}  // namespace pacecar::fabric
