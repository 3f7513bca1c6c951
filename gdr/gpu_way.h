// How a NIC transfers GPU memory, and why in this way.
//
// Pure. Thread rule: any.
#pragma once

#include <span>
#include <string>

#include "gdr/gpu_system.h"
#include "transport/base/params.h"

namespace pacecar {

enum class GpuWay : uint8_t {
  kHost,        // not at all: the application copies to and from host memory
  kStaged,      // we copy, through pinned host memory
  kPeerMemory,  // the NIC reaches it, registered by its address
  kDmaBuf,      // the NIC reaches it, registered as a dma-buf
};

constexpr bool is_direct(GpuWay way) {
  return way == GpuWay::kPeerMemory || way == GpuWay::kDmaBuf;
}

struct NicReach {
  bool software = false;  // this host's processors make its packets
  bool dma_buf = false;
  bool peer_memory = false;
};

struct GpuChoice {
  GpuWay way = GpuWay::kHost;
  std::string why;
  bool refused = false;  // the requested way is impossible
};

// Whether the choice depends on the GPUs, so that the driver must be loaded.
bool depends_on_gpus(GpuSetting setting, const NicReach& nic);

// `gpus` of the driver, or why there are none; unused unless depends_on_gpus.
GpuChoice choose_gpu_way(GpuSetting setting, const NicReach& nic,
                         const Result<std::span<const Gpu>>& gpus);

// "GPU memory through host buffers: a software NIC cannot reach the GPU", for people.
std::string describe(const GpuChoice& choice);

}  // namespace pacecar
