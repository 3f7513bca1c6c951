// Floating-point types below 32 bits, many elements at a time. Rounding is to the nearest, ties to
// even. The types of 8 bits are rounded to 16 bits first and end at their greatest finite value, as
// NCCL's kernels do it.
#pragma once

#include <cstddef>

#include "bench/nccl/cpu_device/collectives/function_table.h"

namespace pacecar::nccl::cpu {

// `type` is kFloat16, kBfloat16, kFloat8E4M3 or kFloat8E5M2.
void to_floats(Type type, const void* from, float* to, size_t elements);
void from_floats(Type type, const float* from, void* to, size_t elements);

}  // namespace pacecar::nccl::cpu
