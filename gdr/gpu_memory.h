// Whether a pointer is in host or GPU memory; and the two ways by which a NIC's driver finds GPU
// memory: as a dma-buf (a file descriptor), or by address, through a kernel module. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "gdr/cuda_driver.h"
#include "transport/base/file_descriptor.h"

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

// For [pointer, pointer + length) of GPU memory. It may cover adjacent allocations; the number is 0
// then. Errors: kInvalidArgument (its ends are not in memory of one GPU), kSystem.
Result<PointerKind> kind_of_gpu_range(const CudaDriver& driver, const void* pointer, size_t length);

struct DmaBuf {
  FileDescriptor fd;    // a registration with a NIC outlives it
  uint64_t offset = 0;  // of the memory in it
};

// The pages of the host's size that hold [address, address + length). Errors: kUnavailable (the
// driver is too old), kSystem (it refuses).
Result<DmaBuf> export_dmabuf(const CudaDriver& driver, const void* address, size_t length);

// The loaded module of NVIDIA for registration by address, which has two names;
// nullopt: not loaded. `root` is "/" except in tests.
std::optional<std::string> peer_memory_module(const std::filesystem::path& root = "/");

}  // namespace pacecar
