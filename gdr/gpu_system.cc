#include "gdr/gpu_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// 0 if the driver does not know the attribute: an older driver lacks the feature.
int attribute(const CudaDriver& driver, int which, cuda::Device device) {
  int value = 0;
  return driver->device_attribute(&value, which, device) == cuda::kSuccess ? value : 0;
}

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

}  // namespace

Result<std::vector<Gpu>> list_gpus(const CudaDriver& driver) {
  std::vector<Gpu> gpus;
  for (int ordinal = 0; ordinal < driver.devices(); ++ordinal) {
    cuda::Device device = 0;
    std::array<char, 32> bus_id{};
    cuda::Status status = driver->device_get(&device, ordinal);
    if (status == cuda::kSuccess) {
      status = driver->device_bus_id(bus_id.data(), static_cast<int>(bus_id.size()), device);
    }
    RETURN_IF_ERROR(driver.check("cuDeviceGetPCIBusId", status,
                                 "`nvidia-smi -L` shows whether the GPU is still there"));
    std::string address(bus_id.data());
    std::ranges::transform(address, address.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    gpus.push_back({.device = ordinal,
                    .pci_bus_id = std::move(address),
                    .dma_buf = driver->range_handle != nullptr &&
                               attribute(driver, cuda::kAttributeDmaBufSupported, device) != 0,
                    .peer_memory = attribute(driver, cuda::kAttributeRdmaSupported, device) != 0,
                    .flush_call = driver->flush_writes != nullptr &&
                                  (attribute(driver, cuda::kAttributeFlushOptions, device) &
                                   cuda::kFlushOptionHost) != 0,
                    .orders_writes = attribute(driver, cuda::kAttributeWritesOrdering, device) >=
                                     cuda::kOrderingOwner});
  }
  return gpus;
}

Result<std::shared_ptr<GpuSystem>> GpuSystem::open(const std::string& library) {
  ASSIGN_OR_RETURN(auto driver, CudaDriver::load(library));
  ASSIGN_OR_RETURN(auto gpus, list_gpus(*driver));
  return std::shared_ptr<GpuSystem>(new GpuSystem(std::move(driver), std::move(gpus)));
}

std::optional<int> GpuSystem::current_device() const {
  cuda::Device device = 0;  // its handle, which is the ordinal
  if ((*driver_)->current_device(&device) != cuda::kSuccess) return std::nullopt;
  return device;
}

Result<std::shared_ptr<const CopyEngine>> GpuSystem::engine(int device) {
  const std::lock_guard lock(mutex_);
  auto& engine = engines_[device];
  if (engine != nullptr) return engine;
  ASSIGN_OR_RETURN(auto opened, CopyEngine::open(driver_, device));
  return engine = std::move(opened);
}

bool depends_on_gpus(GpuSetting setting, const NicReach& nic) {
  if (setting == GpuSetting::kStaged) return true;
  return setting != GpuSetting::kHost && (nic.dma_buf || nic.peer_memory);
}

GpuChoice choose_gpu_way(GpuSetting setting, const NicReach& nic,
                         const Result<std::span<const Gpu>>& gpus) {
  switch (setting) {
    case GpuSetting::kHost: break;
    case GpuSetting::kStaged:
      if (!gpus) return {GpuWay::kHost, gpus.error().message, true};
      return {GpuWay::kStaged, "PACECAR_GPU=staged"};
    case GpuSetting::kAuto: return choose_direct(nic, gpus);
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
