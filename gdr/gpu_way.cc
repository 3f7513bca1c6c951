#include "gdr/gpu_way.h"

#include <fmt/format.h>

#include <algorithm>

namespace pacecar {
namespace {

GpuChoice choose_direct(const NicReach& nic, const Result<std::span<const Gpu>>& gpus) {
  if (nic.software) return {GpuWay::kHost, "a software NIC cannot reach the GPU"};
  if (!nic.dma_buf && !nic.peer_memory) {
    return {GpuWay::kHost,
            "the NIC's driver takes no dma-buf, and nvidia_peermem is not loaded (modprobe "
            "nvidia-peermem)"};
  }
  if (!gpus) return {GpuWay::kHost, gpus.error().message};
  if (nic.dma_buf && std::ranges::all_of(*gpus, &Gpu::dma_buf)) {
    return {GpuWay::kDmaBuf, "NIC and GPU drivers have it"};
  }
  if (nic.peer_memory && std::ranges::all_of(*gpus, &Gpu::peer_memory)) {
    return {GpuWay::kPeerMemory, nic.dma_buf ? "the GPU's driver exports no dma-buf"
                                             : "the NIC's driver takes no dma-buf"};
  }
  return {GpuWay::kHost,
          "the GPU's driver exports no dma-buf (NVIDIA's open kernel modules do), and "
          "nvidia_peermem cannot serve (modprobe nvidia-peermem)"};
}

GpuChoice choose_staged(const Result<std::span<const Gpu>>& gpus) {
  if (!gpus) return {GpuWay::kHost, gpus.error().message, true};
  return {GpuWay::kStaged, "PACECAR_GPU=staged"};
}

}  // namespace

bool depends_on_gpus(GpuSetting setting, const NicReach& nic) {
  if (setting == GpuSetting::kStaged) return true;
  return setting != GpuSetting::kHost && (nic.dma_buf || nic.peer_memory);
}

GpuChoice choose_gpu_way(GpuSetting setting, const NicReach& nic,
                         const Result<std::span<const Gpu>>& gpus) {
  switch (setting) {
    case GpuSetting::kHost:
      break;
    case GpuSetting::kStaged:
      return choose_staged(gpus);
    case GpuSetting::kAuto:
      return choose_direct(nic, gpus);
    case GpuSetting::kDirect: {
      GpuChoice choice = choose_direct(nic, gpus);
      choice.refused = choice.way == GpuWay::kHost;
      return choice;
    }
  }
  return {GpuWay::kHost, "PACECAR_GPU=host"};
}

std::string describe(const GpuChoice& choice) {
  constexpr std::string_view kWays[] = {"through host buffers", "staged through pinned host memory",
                                        "direct by nvidia_peermem", "direct by dma-buf"};
  return fmt::format("GPU memory {}: {}", kWays[static_cast<size_t>(choice.way)], choice.why);
}

}  // namespace pacecar
