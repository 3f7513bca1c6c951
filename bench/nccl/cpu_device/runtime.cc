// CUDA's runtime, as far as NCCL uses it.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "bench/nccl/cpu_device/driver.h"
#include "bench/nccl/cpu_device/launch.h"
#include "bench/nccl/cpu_device/memory.h"
#include "bench/nccl/cpu_device/settings.h"

using namespace pacecar::nccl::cpu;

extern "C" {
int cuDeviceGetPCIBusId(char*, int, int);
int cuDeviceGetUuid_v2(unsigned char*, int);
int cuMemAlloc_v2(DevicePointer*, size_t);
int cuMemFree_v2(DevicePointer);
int cuMemHostAlloc(void**, size_t, unsigned);
int cuMemFreeHost(void*);
int cuMemHostRegister_v2(void*, size_t, unsigned);
int cuMemHostUnregister(void*);
int cuMemHostGetDevicePointer_v2(DevicePointer*, void*, unsigned);
int cuStreamCreate(void**, unsigned);
int cuStreamDestroy_v2(void*);
int cuStreamSynchronize(void*);
int cuStreamQuery(void*);
int cuEventCreate(void**, unsigned);
int cuEventDestroy_v2(void*);
int cuEventRecord(void*, void*);
int cuEventQuery(void*);
}

namespace {

struct Dimensions {
  unsigned x, y, z;
};

// Says once that a function is not there.
int not_there(const char* name, bool& reported) {
  if (settings().log && !std::exchange(reported, true)) {
    std::fprintf(stderr, "cpu_device: %s is not supported\n", name);
  }
  return kNotSupported;
}

// A function of the driver by its name, whose newest version is exported under a suffix.
void* driver_function(const char* name) {
  static void* const itself = [] {
    Dl_info place{};
    dladdr(reinterpret_cast<void*>(&cuStreamQuery), &place);
    return dlopen(place.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  void* const found = dlsym(itself, (std::string(name) + "_v2").c_str());
  return found != nullptr ? found : dlsym(itself, name);
}

void run_now(Command command) {
  Stream& stream = stream_of(nullptr);
  stream.gpu().enqueue(stream, std::move(command));
  stream.gpu().wait_until_idle(stream);
}

}  // namespace

// --- devices ---

CPU_DEVICE_EXPORT int cudaGetDeviceCount(int* count) {
  *count = settings().devices;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaSetDevice(int device) {
  return set_current_gpu(device) ? kSuccess : kInvalidDevice;
}

CPU_DEVICE_EXPORT int cudaGetDevice(int* device) {
  *device = current_gpu().number();
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaRuntimeGetVersion(int* version) {
  *version = kCudaVersion;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaGetLastError() { return kSuccess; }

CPU_DEVICE_EXPORT const char* cudaGetErrorString(int status) {
  static thread_local char made[64];
  std::snprintf(made, sizeof(made), "error %d of the CPU device", status);
  return made;
}

CPU_DEVICE_EXPORT int cudaDeviceSynchronize() {
  current_gpu().wait_until_idle();
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaDeviceSetLimit(int, size_t) { return kSuccess; }

CPU_DEVICE_EXPORT int cudaDeviceGetAttribute(int* value, int which, int) {
  *value = attribute(which);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  return cuDeviceGetPCIBusId(text, bytes, device);
}

CPU_DEVICE_EXPORT int cudaDeviceGetByPCIBusId(int* device, const char* text) {
  unsigned bus = 0;
  if (std::sscanf(text, "%*x:%x", &bus) != 1) return kInvalidValue;
  *device = static_cast<int>(bus) - settings().first_bus;
  return *device >= 0 && *device < settings().devices ? kSuccess : kInvalidDevice;
}

CPU_DEVICE_EXPORT int cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaGetDeviceProperties_v2(char* properties, int device) {
  constexpr size_t kBytes = 1032;  // of cudaDeviceProp since CUDA 12
  const auto set = [&](size_t offset, auto value) {
    std::memcpy(properties + offset, &value, sizeof(value));
  };
  std::memset(properties, 0, kBytes);
  std::snprintf(properties, 256, "CPU device %d", device);
  cuDeviceGetUuid_v2(reinterpret_cast<unsigned char*>(properties) + 256, device);
  set(288, size_t{16} << 30);  // memory
  set(360, attribute(75));
  set(364, attribute(76));
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                              int* status) {
  constexpr int kNotFound = 1;
  *function = driver_function(name);
  if (status != nullptr) *status = *function != nullptr ? kSuccess : kNotFound;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                       unsigned long long flags, int* status) {
  return cudaGetDriverEntryPoint(name, function, flags, status);
}

// --- memory ---

CPU_DEVICE_EXPORT int cudaMalloc(void** to, size_t bytes) {
  return cuMemAlloc_v2(reinterpret_cast<DevicePointer*>(to), bytes);
}

CPU_DEVICE_EXPORT int cudaFree(void* memory) {
  return cuMemFree_v2(reinterpret_cast<DevicePointer>(memory));
}

CPU_DEVICE_EXPORT int cudaMallocFromPoolAsync(void** to, size_t bytes, void*, void*) {
  return cudaMalloc(to, bytes);
}

CPU_DEVICE_EXPORT int cudaFreeAsync(void* memory, void* stream) {
  Stream& when = stream_of(stream);
  when.gpu().enqueue(when, [memory] {
    Memory::get().release(memory);
    return true;
  });
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaMemPoolCreate(void** pool, const void*) {
  static int the_pool;
  *pool = &the_pool;
  return kSuccess;
}
CPU_DEVICE_EXPORT int cudaMemPoolDestroy(void*) { return kSuccess; }
CPU_DEVICE_EXPORT int cudaMemPoolSetAttribute(void*, int, void*) { return kSuccess; }

CPU_DEVICE_EXPORT int cudaHostAlloc(void** to, size_t bytes, unsigned flags) {
  return cuMemHostAlloc(to, bytes, flags);
}

CPU_DEVICE_EXPORT int cudaFreeHost(void* memory) {
  return memory == nullptr ? kSuccess : cuMemFreeHost(memory);
}

CPU_DEVICE_EXPORT int cudaHostRegister(void* memory, size_t bytes, unsigned) {
  return cuMemHostRegister_v2(memory, bytes, 0);
}

CPU_DEVICE_EXPORT int cudaHostUnregister(void* memory) { return cuMemHostUnregister(memory); }

CPU_DEVICE_EXPORT int cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  return cuMemHostGetDevicePointer_v2(reinterpret_cast<DevicePointer*>(device), host, 0);
}

CPU_DEVICE_EXPORT int cudaPointerGetAttributes(void* attributes, const void* pointer) {
  struct Attributes {  // cudaPointerAttributes
    int type;          // 0 unknown, 1 host, 2 device
    int device;
    const void* on_device;
    const void* on_host;
  } made{.type = 0, .device = -2, .on_device = nullptr, .on_host = pointer};
  if (const auto found = Memory::get().find(pointer)) {
    const bool host = found->kind == MemoryKind::kHost;
    made = {host ? 1 : 2, found->device, pointer, host ? pointer : nullptr};
  }
  std::memcpy(attributes, &made, sizeof(made));
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void* stream) {
  copy(to, from, bytes, stream_of(stream));
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaMemcpy(void* to, const void* from, size_t bytes, int) {
  Stream& stream = stream_of(nullptr);
  copy(to, from, bytes, stream);
  stream.gpu().wait_until_idle(stream);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  Stream& when = stream_of(stream);
  when.gpu().enqueue(when, [=] {
    std::memset(view(to), value, bytes);
    return true;
  });
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaMemset(void* to, int value, size_t bytes) {
  run_now([=] {
    std::memset(view(to), value, bytes);
    return true;
  });
  return kSuccess;
}

// --- streams and events ---

CPU_DEVICE_EXPORT int cudaStreamCreate(void** stream) { return cuStreamCreate(stream, 0); }
CPU_DEVICE_EXPORT int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return cuStreamCreate(stream, flags);
}
CPU_DEVICE_EXPORT int cudaStreamDestroy(void* stream) { return cuStreamDestroy_v2(stream); }
CPU_DEVICE_EXPORT int cudaStreamSynchronize(void* stream) { return cuStreamSynchronize(stream); }
CPU_DEVICE_EXPORT int cudaStreamQuery(void* stream) { return cuStreamQuery(stream); }

CPU_DEVICE_EXPORT int cudaStreamGetId(void* stream, unsigned long long* id) {
  *id = stream_of(stream).id();
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaStreamWaitEvent(void* stream, void* event, unsigned) {
  static_cast<Event*>(event)->hold(stream_of(stream));
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaLaunchHostFunc(void* stream, HostFunction function, void* argument) {
  Stream& when = stream_of(stream);
  when.gpu().enqueue(when, [=] {
    function(argument);
    return true;
  });
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaEventCreate(void** event) { return cuEventCreate(event, 0); }
CPU_DEVICE_EXPORT int cudaEventCreateWithFlags(void** event, unsigned flags) {
  return cuEventCreate(event, flags);
}
CPU_DEVICE_EXPORT int cudaEventDestroy(void* event) { return cuEventDestroy_v2(event); }
CPU_DEVICE_EXPORT int cudaEventRecord(void* event, void* stream) {
  return cuEventRecord(event, stream);
}
CPU_DEVICE_EXPORT int cudaEventQuery(void* event) { return cuEventQuery(event); }
CPU_DEVICE_EXPORT int cudaEventSynchronize(void* event) {
  static_cast<Event*>(event)->wait();
  return kSuccess;
}
CPU_DEVICE_EXPORT int cudaEventElapsedTime(float* milliseconds, void* begin, void* end) {
  constexpr double kMillisecondsPerSecond = 1e3;
  *milliseconds = static_cast<float>(
      (static_cast<Event*>(end)->seconds() - static_cast<Event*>(begin)->seconds()) *
      kMillisecondsPerSecond);
  return kSuccess;
}

// --- kernels ---

CPU_DEVICE_EXPORT int cudaFuncGetAttributes(char* attributes, const void*) {
  constexpr size_t kBytes = 52;  // of cudaFuncAttributes that every version has
  constexpr int kThreads = 1024;
  std::memset(attributes, 0, kBytes);
  std::memcpy(attributes + 24, &kThreads, sizeof(kThreads));
  return kSuccess;
}
CPU_DEVICE_EXPORT int cudaFuncSetAttribute(const void*, int, int) { return kSuccess; }

CPU_DEVICE_EXPORT int cudaGetFuncBySymbol(void** function, const void* stub) {
  *function = const_cast<KernelSymbol*>(kernel_at(stub));
  return *function != nullptr ? kSuccess : kInvalidHandle;
}

CPU_DEVICE_EXPORT int cudaLaunchKernel(const void* stub, Dimensions, Dimensions, void**, size_t,
                                       void*) {
  const KernelSymbol* const kernel = kernel_at(stub);
  std::fprintf(stderr, "cpu_device: the kernel %s is not played here\n",
               kernel != nullptr ? kernel->name.c_str() : "of this program");
  return kNotSupported;
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
