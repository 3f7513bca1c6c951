// Functions of CUDA's driver, as the CPU device exports them. 0 is success.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pacecar::cuda_calls_test {

using Pointer = unsigned long long;
using Handle = unsigned long long;

struct Properties {
  int type = 1;          // pinned
  int handle_types = 1;  // file descriptors
  int location_type = 1;
  int location = 0;
  void* windows = nullptr;
  std::array<unsigned char, 8> flags{};
};

struct Access {
  int location_type = 1;
  int location = 0;
  int flags = 3;  // read and write
};

extern "C" {
int cuMemAlloc_v2(Pointer*, size_t);
int cuMemFree_v2(Pointer);
int cuMemGetAddressRange_v2(Pointer*, size_t*, Pointer);
int cuMemcpyHtoD_v2(Pointer, const void*, size_t);
int cuMemcpyDtoH_v2(void*, Pointer, size_t);
int cuPointerGetAttribute(void*, int, Pointer);

int cuMemGetAllocationGranularity(size_t*, const Properties*, int);
int cuMemCreate(Handle*, size_t, const Properties*, unsigned long long);
int cuMemRelease(Handle);
int cuMemRetainAllocationHandle(Handle*, void*);
int cuMemGetAllocationPropertiesFromHandle(Properties*, Handle);
int cuMemExportToShareableHandle(void*, Handle, int, unsigned long long);
int cuMemImportFromShareableHandle(Handle*, void*, int);
int cuMemAddressReserve(Pointer*, size_t, size_t, Pointer, unsigned long long);
int cuMemAddressFree(Pointer, size_t);
int cuMemMap(Pointer, size_t, size_t, Handle, unsigned long long);
int cuMemUnmap(Pointer, size_t);
int cuMemSetAccess(Pointer, size_t, const Access*, size_t);
}

}  // namespace pacecar::cuda_calls_test
