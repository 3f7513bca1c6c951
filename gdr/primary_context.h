// PrimaryContext: holds a GPU's primary context, which CUDA's runtime uses, too. Most calls of the
// driver work on the context that is current in the calling thread.
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

  // Makes the context current in this thread for as long as the object lives.
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

// Returns when everything that NICs have written to the GPU so far is visible to its kernels: for
// NICs that cannot read GPU memory after their own writes. Errors: kSystem.
Result<void> flush_writes(const PrimaryContext& context);

}  // namespace pacecar
