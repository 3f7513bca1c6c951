#include "gdr/gpu_system.h"

#include <utility>

#include "transport/base/return_if_error.h"

namespace pacecar {

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
