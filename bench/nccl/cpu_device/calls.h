// What the sources of CUDA's functions share. The functions have the published C interfaces; each
// returns a Status unless its prototype says otherwise. Many exist twice, in CUDA's runtime and in
// its driver library. Thread rule: any thread.
#pragma once

#include <type_traits>
#include <utility>

#include "bench/nccl/cpu_device/gpu.h"

#define CPU_DEVICE_EXPORT extern "C" __attribute__((visibility("default")))
// `name` is an alias of this source's function `other`. A CUdeviceptr of the driver is passed like
// the runtime's void*.
#define CPU_DEVICE_SAME(name, other) \
  extern "C" __attribute__((visibility("default"), alias(#other))) decltype(other) name;
// What succeeds and does nothing, whatever its arguments.
#define CPU_DEVICE_NOTHING_TO_DO(name) \
  CPU_DEVICE_EXPORT int name() { return kSuccess; }

namespace pacecar::nccl::cpu {

// Values of cudaError_t and CUresult, which have the same numbers.
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

// What a function that cannot fail gives its caller.
template <typename T>
Status give(T* to, std::type_identity_t<T> value) {
  *to = value;
  return kSuccess;
}

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
