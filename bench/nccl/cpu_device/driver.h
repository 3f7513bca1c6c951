// The functions of CUDA's driver that this library has and its CUDA runtime uses; the others are in
// driver.cc only. By the published C interface, under whose names they are exported. All but those
// with another type return a Status. Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/nccl/cpu_device/exported.h"

namespace pacecar::nccl::cpu {

using DevicePointer = unsigned long long;
using HostFunction = void (*)(void*);

inline void* address(DevicePointer pointer) { return reinterpret_cast<void*>(pointer); }

// What CUDA 12.4 answers, with which Debian's NCCL is built.
inline constexpr int kCudaVersion = 12040;

// CUdevice_attribute of a GPU that has the compute capability 9.0.
int attribute(int which);

// A copy as cudaMemcpyAsync does it: of ordinary host memory, everything is read or written before
// it returns.
void copy(void* to, const void* from, size_t bytes, Stream& stream);

}  // namespace pacecar::nccl::cpu
