// What the sources of CUDA's functions share. The functions have the published C interfaces; all
// but those with another type return a Status. CUDA's runtime and its driver library have many of
// them twice, under two names. Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "bench/nccl/cpu_device/gpu.h"

#define CPU_DEVICE_EXPORT extern "C" __attribute__((visibility("default")))
// The function `other` of this source under another name. Pointers to GPU memory, which the driver
// has as numbers, are passed alike.
#define CPU_DEVICE_SAME(name, other) \
  extern "C" __attribute__((visibility("default"), alias(#other))) decltype(other) name;
// What succeeds and does nothing, whatever its arguments.
#define CPU_DEVICE_NOTHING_TO_DO(name) \
  CPU_DEVICE_EXPORT int name() { return kSuccess; }

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

using DevicePointer = unsigned long long;
using HostFunction = void (*)(void*);

inline void* address(DevicePointer pointer) { return reinterpret_cast<void*>(pointer); }

// The GPU that is current in this thread.
Gpu& current_gpu();

// The stream of CUDA's handle; 0, 1 and 2 are default streams of the current GPU.
Stream& stream_of(void* handle);

// Puts a command that is done at once into a stream.
template <typename Work>
void enqueue(Stream& stream, Work work) {
  stream.gpu().enqueue(stream, [work = std::move(work)] {
    work();
    return true;
  });
}

}  // namespace pacecar::nccl::cpu
