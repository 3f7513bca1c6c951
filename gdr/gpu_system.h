// GpuSystem: the driver, its GPUs, and the copy engine of each.
//
// Thread rule: any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gdr/gpu.h"
#include "gdr/staging.h"

namespace pacecar {

class GpuSystem {
 public:
  // Errors: those of CudaDriver::load and list_gpus.
  static Result<std::shared_ptr<GpuSystem>> open(const std::string& library = CudaDriver::kLibrary);

  const CudaDriver& driver() const { return *driver_; }
  const std::vector<Gpu>& gpus() const { return gpus_; }
  // The GPU that the calling thread works with; nullopt when it has not chosen one.
  std::optional<int> current_device() const;
  // The one engine of a GPU, made at the first call. Errors: kSystem.
  Result<std::shared_ptr<const CopyEngine>> engine(int device);

 private:
  GpuSystem(std::shared_ptr<const CudaDriver> driver, std::vector<Gpu> gpus)
      : driver_(std::move(driver)), gpus_(std::move(gpus)) {}

  const std::shared_ptr<const CudaDriver> driver_;
  const std::vector<Gpu> gpus_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<const CopyEngine>> engines_;  // by ordinal
};

}  // namespace pacecar
