// Whether a pointer is host memory or a GPU's.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gdr/cuda_driver.h"
#include "transport/base/result.h"

namespace pacecar {

struct PointerKind {
  bool cuda = false;     // if false the rest is unused
  bool managed = false;  // moves between host and GPU: NICs cannot register it
  int device = 0;        // the GPU's ordinal
  uint64_t base = 0;     // of the allocation that it lies in
  size_t size = 0;       // bytes of that allocation
  // The allocation's number; a later allocation at the same address has another. 0: unknown.
  uint64_t allocation = 0;
};

// Errors: kSystem.
Result<PointerKind> kind_of_pointer(const CudaDriver& driver, const void* pointer);

// For [pointer, pointer + length), which should be a GPU's. The range may cover adjacent
// allocations; the number is 0 then. Errors: kInvalidArgument, if the range does not begin and end
// in memory of one GPU; kSystem.
Result<PointerKind> kind_of_gpu_range(const CudaDriver& driver, const void* pointer, size_t length);

}  // namespace pacecar
