#include "gdr/gpu_system.h"

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

}  // namespace pacecar
