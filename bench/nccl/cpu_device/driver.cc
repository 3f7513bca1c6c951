#include "bench/nccl/cpu_device/driver.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "bench/nccl/cpu_device/launch.h"
#include "bench/nccl/cpu_device/memory.h"
#include "bench/nccl/cpu_device/settings.h"

namespace pacecar::nccl::cpu {
namespace {

thread_local int current = 0;
thread_local std::vector<Gpu*> pushed;

bool known(const void* address) { return Memory::get().find(address).has_value(); }

}  // namespace

Gpu& current_gpu() { return Gpu::get(current); }

bool set_current_gpu(int number) {
  if (number < 0 || number >= settings().devices) return false;
  current = number;
  return true;
}

Stream& stream_of(void* handle) {
  constexpr uintptr_t kLastNamedHandle = 2;  // of the default streams, legacy and per thread
  if (reinterpret_cast<uintptr_t>(handle) <= kLastNamedHandle) {
    return current_gpu().default_stream();
  }
  return *static_cast<Stream*>(handle);
}

int attribute(int which) {
  switch (which) {
    case 1:  // threads of a block
    case 2:
    case 3:
      return 1024;
    case 8:  // shared memory of a block
      return 49152;
    case 10:  // threads of a warp
      return 32;
    case 16:  // multiprocessors
      return 132;
    case 75:
      return 9;  // compute capability
    case 76:
      return 0;
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
    default:
      return 0;
  }
}

void copy(void* to, const void* from, size_t bytes, Stream& stream) {
  if (!known(from)) {
    auto kept = std::make_shared<std::vector<char>>(static_cast<const char*>(from),
                                                    static_cast<const char*>(from) + bytes);
    stream.gpu().enqueue(stream, [=] {
      std::memcpy(view(to), kept->data(), bytes);
      return true;
    });
    return;
  }
  stream.gpu().enqueue(stream, [=] {
    std::memmove(view(to), view(from), bytes);
    return true;
  });
  if (!known(to)) stream.gpu().wait_until_idle(stream);
}

}  // namespace pacecar::nccl::cpu

using namespace pacecar::nccl::cpu;

namespace {

Status allocate(void** to, size_t bytes, MemoryKind kind) {
  *to = Memory::get().allocate(bytes, kind, current_gpu().number());
  return *to != nullptr ? kSuccess : kOutOfMemory;
}

// CUpointer_attribute; false: it has no such attribute.
bool pointer_attribute(void* to, int which, const void* pointer) {
  const auto found = Memory::get().find(pointer);
  if (!found) return false;
  const auto set = [&](auto value) {
    std::memcpy(to, &value, sizeof(value));
    return true;
  };
  switch (which) {
    case 1:  // context
      return set(&Gpu::get(found->device));
    case 2:  // 1 host memory, 2 a GPU's
      return set(found->kind == MemoryKind::kHost ? 1U : 2U);
    case 3:  // pointers of the device, and of the host
      return set(pointer);
    case 4:
      return found->kind == MemoryKind::kHost && set(pointer);
    case 6:  // synchronous operations
    case 8:  // managed memory
      return set(0U);
    case 7:
      return set(found->id);
    case 9:
      return set(found->device);
    case 11:
      return set(found->base);
    case 12:
      return set(found->bytes);
    default:
      return false;
  }
}

}  // namespace

// --- devices and contexts ---

CPU_DEVICE_EXPORT int cuInit(unsigned) { return kSuccess; }

CPU_DEVICE_EXPORT int cuDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuGetErrorString(int status, const char** text) {
  static thread_local char made[64];
  std::snprintf(made, sizeof(made), "error %d of the CPU device", status);
  *text = made;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuGetErrorName(int status, const char** text) {
  return cuGetErrorString(status, text);
}

CPU_DEVICE_EXPORT int cuDeviceGetCount(int* count) {
  *count = settings().devices;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuDeviceGet(int* device, int number) {
  if (number < 0 || number >= settings().devices) return kInvalidDevice;
  *device = number;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuDeviceGetAttribute(int* value, int which, int) {
  *value = attribute(which);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", settings().first_bus + device);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, settings().first_bus + device, 16);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (device < 0 || device >= settings().devices) return kInvalidDevice;
  *context = &Gpu::get(device);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }

CPU_DEVICE_EXPORT int cuCtxGetCurrent(void** context) {
  *context = &current_gpu();
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuCtxSetCurrent(void* context) {
  if (context != nullptr) set_current_gpu(static_cast<Gpu*>(context)->number());
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuCtxPushCurrent_v2(void* context) {
  pushed.push_back(&current_gpu());
  return cuCtxSetCurrent(context);
}

CPU_DEVICE_EXPORT int cuCtxPopCurrent_v2(void** context) {
  if (pushed.empty()) return kInvalidValue;
  if (context != nullptr) *context = &current_gpu();
  set_current_gpu(pushed.back()->number());
  pushed.pop_back();
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuCtxGetDevice(int* device) {
  *device = current_gpu().number();
  return kSuccess;
}

// --- memory ---

CPU_DEVICE_EXPORT int cuMemAlloc_v2(DevicePointer* to, size_t bytes) {
  void* memory = nullptr;
  const Status status = allocate(&memory, bytes, MemoryKind::kDevice);
  *to = reinterpret_cast<DevicePointer>(memory);
  return status;
}

CPU_DEVICE_EXPORT int cuMemFree_v2(DevicePointer memory) {
  if (memory == 0) return kSuccess;
  current_gpu().wait_until_idle();  // as CUDA does
  return Memory::get().release(address(memory)) ? kSuccess : kInvalidValue;
}

CPU_DEVICE_EXPORT int cuMemHostAlloc(void** to, size_t bytes, unsigned) {
  return allocate(to, bytes, MemoryKind::kHost);
}

CPU_DEVICE_EXPORT int cuMemFreeHost(void* memory) {
  return Memory::get().release(memory) ? kSuccess : kInvalidValue;
}

CPU_DEVICE_EXPORT int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
  Memory::get().register_host(memory, bytes, current_gpu().number());
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuMemHostUnregister(void* memory) { return cuMemFreeHost(memory); }

CPU_DEVICE_EXPORT int cuMemHostGetDevicePointer_v2(DevicePointer* to, void* memory, unsigned) {
  *to = reinterpret_cast<DevicePointer>(memory);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuMemGetAddressRange_v2(DevicePointer* base, size_t* bytes,
                                              DevicePointer pointer) {
  const auto found = Memory::get().find(address(pointer));
  if (!found) return kInvalidValue;
  if (base != nullptr) *base = found->base;
  if (bytes != nullptr) *bytes = found->bytes;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuPointerGetAttribute(void* to, int which, DevicePointer pointer) {
  return pointer_attribute(to, which, address(pointer)) ? kSuccess : kInvalidValue;
}

// Unknown pointers succeed, with zeros.
CPU_DEVICE_EXPORT int cuPointerGetAttributes(unsigned count, const int* which, void** to,
                                             DevicePointer pointer) {
  for (unsigned i = 0; i < count; ++i) {
    if (pointer_attribute(to[i], which[i], address(pointer))) continue;
    constexpr int kMemoryType = 2;
    if (which[i] == kMemoryType) std::memset(to[i], 0, sizeof(unsigned));
  }
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuPointerSetAttribute(const void*, int, DevicePointer) { return kSuccess; }

// What NICs write is in memory at once.
CPU_DEVICE_EXPORT int cuFlushGPUDirectRDMAWrites(int, int) { return kSuccess; }

CPU_DEVICE_EXPORT int cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes,
                                           void* stream) {
  copy(address(to), from, bytes, stream_of(stream));
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes,
                                           void* stream) {
  copy(to, address(from), bytes, stream_of(stream));
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuMemcpyHtoD_v2(DevicePointer to, const void* from, size_t bytes) {
  Stream& stream = stream_of(nullptr);
  copy(address(to), from, bytes, stream);
  stream.gpu().wait_until_idle(stream);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuMemcpyDtoH_v2(void* to, DevicePointer from, size_t bytes) {
  Stream& stream = stream_of(nullptr);
  copy(to, address(from), bytes, stream);
  stream.gpu().wait_until_idle(stream);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuMemsetD8_v2(DevicePointer to, unsigned char value, size_t bytes) {
  Stream& stream = stream_of(nullptr);
  stream.gpu().enqueue(stream, [=] {
    std::memset(view(address(to)), value, bytes);
    return true;
  });
  stream.gpu().wait_until_idle(stream);
  return kSuccess;
}

// --- streams and events ---

CPU_DEVICE_EXPORT int cuStreamCreate(void** stream, unsigned flags) {
  constexpr unsigned kNonBlocking = 1;
  *stream = &current_gpu().create_stream((flags & kNonBlocking) == 0);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuStreamDestroy_v2(void* stream) {
  Stream& ended = stream_of(stream);
  ended.gpu().destroy(ended);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuStreamSynchronize(void* stream) {
  const Stream& waited = stream_of(stream);
  waited.gpu().wait_until_idle(waited);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuStreamQuery(void* stream) {
  return Gpu::idle(stream_of(stream)) ? kSuccess : kNotReady;
}

CPU_DEVICE_EXPORT int cuEventCreate(void** event, unsigned) {
  *event = new Event;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuEventRecord(void* event, void* stream) {
  static_cast<Event*>(event)->record(stream_of(stream));
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuEventQuery(void* event) {
  return static_cast<Event*>(event)->reached() ? kSuccess : kNotReady;
}

// --- kernels ---

CPU_DEVICE_EXPORT int cuLaunchKernelEx(const void* configuration, void* function, void**,
                                       void** extra) {
  // CUlaunchConfig: three dimensions of the grid, three of a block, shared memory, the stream.
  const auto* const config = static_cast<const char*>(configuration);
  unsigned blocks = 0;
  void* stream = nullptr;
  std::memcpy(&blocks, config, sizeof(blocks));
  std::memcpy(&stream, config + 32, sizeof(stream));
  // `extra`: pairs of what follows and where it is.
  constexpr uintptr_t kEnd = 0;
  constexpr uintptr_t kBuffer = 1;
  const char* arguments = nullptr;
  size_t bytes = 0;
  for (void** each = extra; each && reinterpret_cast<uintptr_t>(each[0]) != kEnd; each += 2) {
    if (reinterpret_cast<uintptr_t>(each[0]) == kBuffer) {
      arguments = static_cast<const char*>(each[1]);
    } else {
      bytes = *static_cast<const size_t*>(each[1]);
    }
  }
  if (arguments == nullptr || function == nullptr) return kNotSupported;
  const auto& kernel = *static_cast<const KernelSymbol*>(function);
  return launch(kernel, arguments, bytes, blocks, stream_of(stream)) ? kSuccess : kNotSupported;
}
