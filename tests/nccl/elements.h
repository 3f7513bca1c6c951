// Elements of every type of NCCL whose sums, products and averages are exact in any order, so that
// results can be compared bit by bit. Written apart from the CPU device's arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pacecar::nccl_test {

// ncclDataType_t.
struct ElementType {
  int number;
  const char* name;
  size_t bytes;
  bool is_float;
  int exponent_bits;  // of floats
  int mantissa_bits;
  int64_t greatest_exact;  // all whole numbers up to this are values
};
// All types; the two 8-bit floats, which NCCL 2.22 lacks, are last.
std::span<const ElementType> element_types();

// ncclRedOp_t, and an operation that a test makes: the sum of elements multiplied by a scalar.
enum class Operation { kSum, kProduct, kMaximum, kMinimum, kAverage, kScaledSum };
inline constexpr int kOperations = 6;

// The scalar of kScaledSum.
inline constexpr int64_t kScale = 2;

// What rank `rank` of `ranks` has at `index`, as a number.
int64_t input(const ElementType& type, Operation operation, uint64_t salt, int rank, int ranks,
              size_t index);

// Result of combining the inputs of `ranks` ranks. False: not exact for this many ranks.
bool is_exact(const ElementType& type, Operation operation, int ranks);
double combined(const ElementType& type, Operation operation, uint64_t salt, int ranks,
                size_t index);

// The element of a value that the type has exactly.
void write_element(const ElementType& type, double value, void* to);

}  // namespace pacecar::nccl_test
