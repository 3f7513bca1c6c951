// Atomic operations on memory: libfabric's operations and datatypes, by its numbers. Atomic towards
// each other, as one thread at a time calls them; not towards the processor's own. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pacecar::fabric {

// As fi_op and fi_datatype number them.
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
enum class Datatype : uint8_t {
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat,
  kDouble,
  kFloatComplex,
  kDoubleComplex,
  kLongDouble,
  kLongDoubleComplex,
};
inline constexpr uint8_t kDatatypes = 14;
inline constexpr uint8_t kAtomicOps = 19;

// Of one element; 0: there is no such datatype.
size_t datatype_bytes(uint8_t datatype);

// Whether there is such an operation on this datatype, of those that only change memory (or, with
// `fetches`, also return what was there), or of those that compare.
bool atomic_valid(uint8_t operation, uint8_t datatype, bool fetches, bool compares);

// One that is valid. Each of `count` elements at `target` is changed by its operand, where it
// compares as its comparand says; `result` gets what was there, unless it is null. The operands may
// be at any address; `target` is aligned to its datatype or not.
void apply_atomic(uint8_t operation, uint8_t datatype, size_t count, uint8_t* target,
                  const uint8_t* operands, const uint8_t* comparands, uint8_t* result);

}  // namespace pacecar::fabric
