// What the sources of CUDA's functions share: how they are exported, errors, the thread's GPU.
#pragma once

#include "bench/nccl/cpu_device/gpu.h"

#define CPU_DEVICE_EXPORT extern "C" __attribute__((visibility("default")))

namespace pacecar::nccl::cpu {

// Of cudaError_t and CUresult, which have the same numbers.
enum Status : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kInvalidHandle = 400,
  kNotReady = 600,
  kNotSupported = 801,
};

// The GPU that is current in this thread.
Gpu& current_gpu();
// False: there is no such GPU.
bool set_current_gpu(int number);

// The stream of CUDA's handle; 0, 1 and 2 are default streams of the current GPU.
Stream& stream_of(void* handle);

}  // namespace pacecar::nccl::cpu
