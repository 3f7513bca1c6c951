// Plays CUDA's driver for bench/nccl/gpu: the GPU's memory is the process's own, and every call is
// synchronous. FAKE_NCCL=no-gpu: there is no GPU.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "bench/nccl/gpu/libraries.h"

using pacecar::nccl::Context;
using pacecar::nccl::Device;
using pacecar::nccl::DevicePointer;
using pacecar::nccl::Stream;

namespace {

constexpr int kNoDevice = 100;
constexpr int kVersion = 13000;

void* memory_at(DevicePointer address) { return reinterpret_cast<void*>(address); }

bool has_gpu() {
  const char* fault = std::getenv("FAKE_NCCL");
  return fault == nullptr || std::string_view(fault) != "no-gpu";
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return has_gpu() ? 0 : kNoDevice; }
int cuDriverGetVersion(int* version) {
  *version = kVersion;
  return 0;
}
int cuGetErrorString(int error, const char** text) {
  *text = error == 0 ? "no error" : "no CUDA-capable device is detected";
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
int cuDeviceGet(Device* device, int number) {
  *device = number;
  return 0;
}
int cuDevicePrimaryCtxRetain(Context*, Device) { return 0; }
int cuCtxSetCurrent(Context) { return 0; }
int cuMemAlloc_v2(DevicePointer* address, size_t bytes) {
  *address = reinterpret_cast<DevicePointer>(std::malloc(bytes));
  return 0;
}
int cuMemFree_v2(DevicePointer address) {
  std::free(memory_at(address));
  return 0;
}
int cuMemsetD8_v2(DevicePointer address, unsigned char byte, size_t bytes) {
  std::memset(memory_at(address), byte, bytes);
  return 0;
}
int cuMemcpyHtoD_v2(DevicePointer to, const void* from, size_t bytes) {
  std::memcpy(memory_at(to), from, bytes);
  return 0;
}
int cuMemcpyDtoH_v2(void* to, DevicePointer from, size_t bytes) {
  std::memcpy(to, memory_at(from), bytes);
  return 0;
}
int cuStreamCreate(Stream*, unsigned) { return 0; }
int cuStreamQuery(Stream) { return 0; }
int cuStreamDestroy_v2(Stream) { return 0; }

}  // extern "C"
