// Arithmetic on elements, as NCCL's kernels do it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/nccl/cpu_device/collectives/function_table.h"

namespace pacecar::nccl::cpu {

size_t size_of(Type type);

// The reduction of one work: function, type, and the operand that NCCL gives it.
//   kMinMax            bit 0 of a float's operand set: the greater; integers compare as unsigned
//                      numbers after an exclusive or with the operand
//   kPreMultipliedSum  the scalar's bits, by which a rank multiplies its own input
//   kSumPostDivided    the divisor, applied to the whole sum; `is_signed` says how
class Arithmetic {
 public:
  Arithmetic(Reduction reduction, Type type, uint64_t operand, bool is_signed)
      : reduction_(reduction), type_(type), operand_(operand), signed_(is_signed) {}

  size_t element_bytes() const { return size_of(type_); }

  // accumulated[i] = accumulated[i] (op) added[i]. The arrays need no alignment.
  void reduce(void* accumulated, const void* added, size_t elements) const;
  // A rank's own input, before it is reduced; and the whole result, after.
  void prepare(void* input, size_t elements) const;
  void finish(void* result, size_t elements) const;

 private:
  Reduction reduction_;
  Type type_;
  uint64_t operand_;
  bool signed_;
};

}  // namespace pacecar::nccl::cpu
