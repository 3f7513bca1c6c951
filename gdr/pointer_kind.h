// Which pointer is what: memory of the host, or of a GPU.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gdr/cuda_driver.h"
#include "transport/base/result.h"

namespace pacecar {

struct PointerKind {
  bool cuda = false;     // else the rest means nothing
  bool managed = false;  // moves between host and GPU: no NIC can hold on to it
  int device = 0;        // the GPU's ordinal
  uint64_t base = 0;     // of the allocation that it lies in
  size_t size = 0;       // bytes of that allocation
  // Its number: another one that comes to lie at the same address has another. 0: not known.
  uint64_t allocation = 0;
};

// Errors: kSystem.
Result<PointerKind> kind_of_pointer(const CudaDriver& driver, const void* pointer);

// Of [pointer, pointer + length), which is said to be a GPU's; it may consist of several
// allocations, side by side, and has no number then. Errors: kInvalidArgument, when it does not
// begin and end in memory of one GPU; kSystem.
Result<PointerKind> kind_of_gpu_range(const CudaDriver& driver, const void* pointer, size_t length);

}  // namespace pacecar
