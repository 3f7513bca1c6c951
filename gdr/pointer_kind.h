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
};

// Errors: kSystem.
Result<PointerKind> kind_of_pointer(const CudaDriver& driver, const void* pointer);

// As above, for memory that is said to be a GPU's. Errors: kInvalidArgument, when [pointer, pointer
// + length) does not lie in one allocation of a GPU; kSystem.
Result<PointerKind> kind_of_gpu_range(const CudaDriver& driver, const void* pointer, size_t length);

}  // namespace pacecar
