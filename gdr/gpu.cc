#include "gdr/gpu.h"

#include <algorithm>
#include <array>
#include <cctype>

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

}  // namespace pacecar
