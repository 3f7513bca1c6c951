// Devices, contexts, and features that the GPUs lack.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench/nccl/cpu_device/calls.h"
#include "bench/nccl/cpu_device/settings.h"

namespace pacecar::nccl::cpu {
namespace {

constexpr int kCudaVersion = 12040;  // with which Debian's NCCL is built

thread_local int current = 0;
thread_local std::vector<Gpu*> pushed;

bool exists(int device) { return device >= 0 && device < settings().devices; }

// CUdevice_attribute of a GPU that has the compute capability 9.0.
int attribute(int which) {
  switch (which) {
    case 1:  // threads of a block
    case 2:
    case 3: return 1024;
    case 8:  // shared memory of a block
      return 49152;
    case 10:  // threads of a warp
      return 32;
    case 16:  // multiprocessors
      return 132;
    case 75: return 9;  // compute capability
    case 76: return 0;
    case 41:   // unified addresses
    case 91:   // host pointers are device pointers
    case 99:   // host memory can be registered
    case 102:  // virtual memory
    case 103:  // its handles are file descriptors
    case 110:  // NICs can reach it
    case 120:  // clusters of blocks
      return 1;
    case 97:  // shared memory that a block can ask for
      return 232448;
    case 116:  // GPUDirect RDMA. Without the trap nothing would show that a NIC needs it
    case 117:  // its writes can be flushed
      return settings().trap ? 1 : 0;
    default: return 0;
  }
}

// Says once that a function is not there.
int not_there(const char* name, bool& reported) {
  if (settings().log && !std::exchange(reported, true)) {
    std::fprintf(stderr, "cpu_device: %s is not supported\n", name);
  }
  return kNotSupported;
}

}  // namespace

Gpu& current_gpu() { return Gpu::get(current); }

Stream& stream_of(void* handle) {
  constexpr uintptr_t kLastNamedHandle = 2;  // of the default streams, legacy and per thread
  if (reinterpret_cast<uintptr_t>(handle) <= kLastNamedHandle) {
    return current_gpu().default_stream();
  }
  return *static_cast<Stream*>(handle);
}

}  // namespace pacecar::nccl::cpu

using namespace pacecar::nccl::cpu;

// --- devices ---

CPU_DEVICE_NOTHING_TO_DO(cuInit)
CPU_DEVICE_NOTHING_TO_DO(cudaGetLastError)
CPU_DEVICE_NOTHING_TO_DO(cudaDeviceSetLimit)

CPU_DEVICE_EXPORT int cuDriverGetVersion(int* version) { return give(version, kCudaVersion); }
CPU_DEVICE_SAME(cudaDriverGetVersion, cuDriverGetVersion)
CPU_DEVICE_SAME(cudaRuntimeGetVersion, cuDriverGetVersion)

CPU_DEVICE_EXPORT const char* cudaGetErrorString(int status) {
  static thread_local char made[64];
  std::snprintf(made, sizeof(made), "error %d of the CPU device", status);
  return made;
}

CPU_DEVICE_EXPORT int cuGetErrorString(int status, const char** text) {
  return give(text, cudaGetErrorString(status));
}
CPU_DEVICE_SAME(cuGetErrorName, cuGetErrorString)

CPU_DEVICE_EXPORT int cuDeviceGetCount(int* count) { return give(count, settings().devices); }
CPU_DEVICE_SAME(cudaGetDeviceCount, cuDeviceGetCount)

CPU_DEVICE_EXPORT int cuDeviceGet(int* device, int number) {
  *device = number;
  return exists(number) ? kSuccess : kInvalidDevice;
}

CPU_DEVICE_EXPORT int cuDeviceGetAttribute(int* value, int which, int) {
  return give(value, attribute(which));
}
CPU_DEVICE_SAME(cudaDeviceGetAttribute, cuDeviceGetAttribute)

CPU_DEVICE_EXPORT int cuDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", settings().first_bus + device);
  return kSuccess;
}
CPU_DEVICE_SAME(cudaDeviceGetPCIBusId, cuDeviceGetPCIBusId)

CPU_DEVICE_EXPORT int cudaDeviceGetByPCIBusId(int* device, const char* text) {
  unsigned bus = 0;
  if (std::sscanf(text, "%*x:%x", &bus) != 1) return kInvalidValue;
  *device = static_cast<int>(bus) - settings().first_bus;
  return exists(*device) ? kSuccess : kInvalidDevice;
}

CPU_DEVICE_EXPORT int cudaDeviceCanAccessPeer(int* can, int, int) { return give(can, 0); }

CPU_DEVICE_EXPORT int cudaGetDeviceProperties_v2(char* properties, int device) {
  constexpr size_t kBytes = 1032;  // of cudaDeviceProp since CUDA 12
  const auto set = [&](size_t offset, auto value) {
    std::memcpy(properties + offset, &value, sizeof(value));
  };
  std::memset(properties, 0, kBytes);
  std::snprintf(properties, 256, "CPU device %d", device);
  std::memset(properties + 256, settings().first_bus + device, 16);  // a UUID
  set(288, size_t{16} << 30);                                        // memory
  set(360, attribute(75));
  set(364, attribute(76));
  return kSuccess;
}

// A function of the driver by its name, whose newest version is exported under a suffix.
CPU_DEVICE_EXPORT int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                              int* status) {
  constexpr int kNotFound = 1;
  static void* const itself = [] {
    Dl_info place{};
    dladdr(reinterpret_cast<void*>(&cuDriverGetVersion), &place);
    return dlopen(place.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  *function = dlsym(itself, (std::string(name) + "_v2").c_str());
  if (*function == nullptr) *function = dlsym(itself, name);
  if (status != nullptr) *status = *function != nullptr ? kSuccess : kNotFound;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                       unsigned long long flags, int* status) {
  return cudaGetDriverEntryPoint(name, function, flags, status);
}

// --- the thread's device ---

CPU_DEVICE_EXPORT int cudaSetDevice(int device) {
  if (!exists(device)) return kInvalidDevice;
  current = device;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuCtxGetDevice(int* device) { return give(device, current); }
CPU_DEVICE_SAME(cudaGetDevice, cuCtxGetDevice)

CPU_DEVICE_EXPORT int cudaDeviceSynchronize() {
  current_gpu().wait_until_idle();
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  return exists(device) ? give(context, &Gpu::get(device)) : kInvalidDevice;
}

CPU_DEVICE_NOTHING_TO_DO(cuDevicePrimaryCtxRelease_v2)

CPU_DEVICE_EXPORT int cuCtxGetCurrent(void** context) { return give(context, &current_gpu()); }

CPU_DEVICE_EXPORT int cuCtxSetCurrent(void* context) {
  if (context != nullptr) current = static_cast<Gpu*>(context)->number();
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuCtxPushCurrent_v2(void* context) {
  pushed.push_back(&current_gpu());
  return cuCtxSetCurrent(context);
}

CPU_DEVICE_EXPORT int cuCtxPopCurrent_v2(void** context) {
  if (pushed.empty()) return kInvalidValue;
  if (context != nullptr) *context = &current_gpu();
  current = pushed.back()->number();
  pushed.pop_back();
  return kSuccess;
}

// --- what NCCL and net plugins can ask for and is not there ---

#define NOT_THERE(name)                \
  CPU_DEVICE_EXPORT int name() {       \
    static bool reported = false;      \
    return not_there(#name, reported); \
  }
NOT_THERE(cuMemGetHandleForAddressRange)
NOT_THERE(cudaDeviceEnablePeerAccess)
NOT_THERE(cudaGraphAddKernelNode)
NOT_THERE(cudaIpcCloseMemHandle)
NOT_THERE(cudaIpcGetMemHandle)
NOT_THERE(cudaIpcOpenMemHandle)
