// Memory of GPUs and of the host, and copies.
#include <cstring>
#include <memory>
#include <vector>

#include "bench/nccl/cpu_device/calls.h"
#include "bench/nccl/cpu_device/memory.h"

using namespace pacecar::nccl::cpu;

namespace {

bool known(const void* address) { return Memory::get().find(address).has_value(); }

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
    case 2:  // 1 host memory, 2 GPU memory
      return set(found->kind == MemoryKind::kHost ? 1U : 2U);
    case 3:  // pointers of the device, and of the host
      return set(pointer);
    case 4: return found->kind == MemoryKind::kHost && set(pointer);
    case 6:  // synchronous operations
    case 8:  // managed memory
      return set(0U);
    case 7: return set(found->id);
    case 9: return set(found->device);
    case 11: return set(found->base);
    case 12: return set(found->bytes);
    default: return false;
  }
}

void wait_for(const Stream& stream) { stream.gpu().wait_until_idle(stream); }

}  // namespace

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

CPU_DEVICE_SAME(cudaMalloc, cuMemAlloc_v2)
CPU_DEVICE_SAME(cudaFree, cuMemFree_v2)

CPU_DEVICE_EXPORT int cudaMallocFromPoolAsync(void** to, size_t bytes, void*, void*) {
  return allocate(to, bytes, MemoryKind::kDevice);
}

CPU_DEVICE_EXPORT int cudaFreeAsync(void* memory, void* stream) {
  enqueue(stream_of(stream), [memory] { Memory::get().release(memory); });
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaMemPoolCreate(void** pool, const void*) {
  static int the_pool;
  return give(pool, &the_pool);
}
CPU_DEVICE_NOTHING_TO_DO(cudaMemPoolDestroy)
CPU_DEVICE_NOTHING_TO_DO(cudaMemPoolSetAttribute)

CPU_DEVICE_EXPORT int cuMemHostAlloc(void** to, size_t bytes, unsigned) {
  return allocate(to, bytes, MemoryKind::kHost);
}

CPU_DEVICE_EXPORT int cuMemFreeHost(void* memory) {
  return memory == nullptr || Memory::get().release(memory) ? kSuccess : kInvalidValue;
}

CPU_DEVICE_SAME(cudaHostAlloc, cuMemHostAlloc)
CPU_DEVICE_SAME(cudaFreeHost, cuMemFreeHost)
CPU_DEVICE_SAME(cudaHostUnregister, cuMemFreeHost)

CPU_DEVICE_EXPORT int cudaHostRegister(void* memory, size_t bytes, unsigned) {
  Memory::get().register_host(memory, bytes, current_gpu().number());
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaHostGetDevicePointer(void** to, void* memory, unsigned) {
  return give(to, memory);
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

CPU_DEVICE_NOTHING_TO_DO(cuPointerSetAttribute)
CPU_DEVICE_NOTHING_TO_DO(cuFlushGPUDirectRDMAWrites)  // what NICs write is in memory at once

// A copy from or to ordinary host memory reads or writes that memory before it returns.
CPU_DEVICE_EXPORT int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void* stream) {
  Stream& when = stream_of(stream);
  if (!known(from)) {
    const auto* const begin = static_cast<const char*>(from);
    const auto kept = std::make_shared<std::vector<char>>(begin, begin + bytes);
    enqueue(when, [=] { std::memcpy(view(to), kept->data(), bytes); });
    return kSuccess;
  }
  enqueue(when, [=] { std::memmove(view(to), view(from), bytes); });
  if (!known(to)) wait_for(when);
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaMemcpy(void* to, const void* from, size_t bytes, int kind) {
  cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  wait_for(stream_of(nullptr));
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes,
                                           void* stream) {
  return cudaMemcpyAsync(address(to), from, bytes, 0, stream);
}
CPU_DEVICE_EXPORT int cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes,
                                           void* stream) {
  return cudaMemcpyAsync(to, address(from), bytes, 0, stream);
}
CPU_DEVICE_EXPORT int cuMemcpyHtoD_v2(DevicePointer to, const void* from, size_t bytes) {
  return cudaMemcpy(address(to), from, bytes, 0);
}
CPU_DEVICE_EXPORT int cuMemcpyDtoH_v2(void* to, DevicePointer from, size_t bytes) {
  return cudaMemcpy(to, address(from), bytes, 0);
}

CPU_DEVICE_EXPORT int cudaMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  enqueue(stream_of(stream), [=] { std::memset(view(to), value, bytes); });
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaMemset(void* to, int value, size_t bytes) {
  cudaMemsetAsync(to, value, bytes, nullptr);
  wait_for(stream_of(nullptr));
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuMemsetD8_v2(DevicePointer to, unsigned char value, size_t bytes) {
  return cudaMemset(address(to), value, bytes);
}
