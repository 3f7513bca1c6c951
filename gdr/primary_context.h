// PrimaryContext: holds a GPU's primary context, which CUDA's runtime uses. It must be the calling
// thread's current one during the driver's calls.
//
// Thread rule: any thread.
#pragma once

#include <memory>

#include "gdr/cuda_driver.h"
#include "transport/base/result.h"

namespace pacecar {

class PrimaryContext {
 public:
  // Errors: kSystem.
  static Result<std::unique_ptr<PrimaryContext>> retain(std::shared_ptr<const CudaDriver> driver,
                                                        int device);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  const CudaDriver& driver() const { return *driver_; }

  // Current in this thread for as long as the object lives.
  class Current {
   public:
    explicit Current(const PrimaryContext& context);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const CudaDriver& driver_;
    const bool pushed_;
  };

 private:
  PrimaryContext(std::shared_ptr<const CudaDriver> driver, cuda::Device device,
                 cuda::Context context)
      : driver_(std::move(driver)), device_(device), context_(context) {}

  const std::shared_ptr<const CudaDriver> driver_;
  const cuda::Device device_;
  const cuda::Context context_;
};

}  // namespace pacecar
