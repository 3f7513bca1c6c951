// What NCCL 2.29.7 has its kernels do when a device communicator ends: the signals and counters
// that it had for one-sided operations of kernels (GIN) become 0 again.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "bench/nccl/cpu_device/calls.h"
#include "bench/nccl/cpu_device/memory.h"

using namespace pacecar::nccl::cpu;

namespace {

struct GinPart {  // of ncclDevComm, from byte 136
  uint8_t connections;
  std::array<uint8_t, 4> types;
  std::array<const void*, 4> handles;
  uint32_t first_signal;
  int signals;
  uint32_t first_counter;
  int counters;
  const void* shadows;
  uint32_t contexts;
  uint32_t first_context;
};
constexpr size_t kGinPart = 136;

struct GinContext {  // ncclGinProxyGpuCtx_t: an array of them is in the GPU's memory
  int ranks;
  uint32_t queue_entries;
  std::array<void*, 3> queues;
  uint64_t* counters;
  uint64_t* signals;
};

void clear(uint64_t* words, size_t first, int count) {
  std::ranges::fill(std::span(view(words) + first, static_cast<size_t>(count)), 0);
}

}  // namespace

CPU_DEVICE_EXPORT void cpu_device_end_gin(const char* communicator) {
  const auto& gin = *reinterpret_cast<const GinPart*>(communicator + kGinPart);
  for (uint32_t i = gin.first_context; i < gin.first_context + gin.contexts; ++i) {
    const auto* const contexts =
        static_cast<const GinContext*>(view(gin.handles[i % gin.connections]));
    const GinContext& context = contexts[i / gin.connections];
    clear(context.signals, gin.first_signal, gin.signals);
    clear(context.counters, gin.first_counter, gin.counters);
  }
}
