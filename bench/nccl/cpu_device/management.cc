// NVIDIA's management library, as far as NCCL uses it: GPUs without NVLink.
#include <cstdint>

#include "bench/nccl/cpu_device/calls.h"
#include "bench/nccl/cpu_device/settings.h"

using namespace pacecar::nccl::cpu;

namespace {

constexpr int kManagementNotSupported = 3;

// A device's handle is its number + 1.
int give_handle(int number, void** device) {
  return give(device, reinterpret_cast<void*>(intptr_t{number} + 1));
}

}  // namespace

CPU_DEVICE_NOTHING_TO_DO(nvmlInit_v2)
CPU_DEVICE_NOTHING_TO_DO(nvmlInit)
CPU_DEVICE_NOTHING_TO_DO(nvmlShutdown)
CPU_DEVICE_EXPORT const char* nvmlErrorString(int) { return "not supported by the CPU device"; }

CPU_DEVICE_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  return give(count, static_cast<unsigned>(settings().devices));
}
CPU_DEVICE_SAME(nvmlDeviceGetCount, nvmlDeviceGetCount_v2)

CPU_DEVICE_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void** device) {
  return give_handle(static_cast<int>(index), device);
}
CPU_DEVICE_EXPORT int nvmlDeviceGetHandleByPciBusId(const char* text, void** device) {
  unsigned bus = 0;
  if (std::sscanf(text, "%*x:%x", &bus) != 1) return kManagementNotSupported;
  return give_handle(static_cast<int>(bus) - settings().first_bus, device);
}
CPU_DEVICE_EXPORT int nvmlDeviceGetIndex(void* device, unsigned* index) {
  return give(index, static_cast<unsigned>(reinterpret_cast<uintptr_t>(device)) - 1);
}
CPU_DEVICE_EXPORT int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  return give(minor, 0);
}
CPU_DEVICE_EXPORT int nvmlDeviceGetP2PStatus(void*, void*, int, int* status) {
  constexpr int kUnsupported = 5;
  return give(status, kUnsupported);
}
CPU_DEVICE_EXPORT int nvmlDeviceGetNvLinkState() { return kManagementNotSupported; }
CPU_DEVICE_SAME(nvmlDeviceGetNvLinkRemotePciInfo, nvmlDeviceGetNvLinkState)
CPU_DEVICE_SAME(nvmlDeviceGetNvLinkCapability, nvmlDeviceGetNvLinkState)
CPU_DEVICE_SAME(nvmlDeviceGetFieldValues, nvmlDeviceGetNvLinkState)
