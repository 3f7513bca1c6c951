// A GPU's memory as a dma-buf: a file descriptor by which a NIC's driver finds it.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>

#include "gdr/cuda_driver.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace pacecar {

struct DmaBuf {
  FileDescriptor fd;    // a registration with a NIC outlives it
  uint64_t offset = 0;  // of the memory in it
};

// The pages of the host's size that hold [address, address + length). Errors: kUnavailable (the
// driver is too old), kSystem (it refuses).
Result<DmaBuf> export_dmabuf(const CudaDriver& driver, const void* address, size_t length);

}  // namespace pacecar
