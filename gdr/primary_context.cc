#include "gdr/primary_context.h"

#include <utility>

#include "transport/base/return_if_error.h"

namespace pacecar {

Result<std::unique_ptr<PrimaryContext>> PrimaryContext::retain(
    std::shared_ptr<const CudaDriver> driver, int device) {
  cuda::Device handle = 0;
  cuda::Context context = nullptr;
  cuda::Status status = (*driver)->device_get(&handle, device);
  if (status == cuda::kSuccess) status = (*driver)->retain_context(&context, handle);
  RETURN_IF_ERROR(driver->check("cuDevicePrimaryCtxRetain", status,
                                "`nvidia-smi` shows whether the GPU works and is free"));
  return std::unique_ptr<PrimaryContext>(new PrimaryContext(std::move(driver), handle, context));
}

PrimaryContext::~PrimaryContext() { (*driver_)->release_context(device_); }

// If the context cannot be made current, the calls that follow fail and report it.
PrimaryContext::Current::Current(const PrimaryContext& context)
    : driver_(*context.driver_),
      pushed_(driver_->push_context(context.context_) == cuda::kSuccess) {}

PrimaryContext::Current::~Current() {
  cuda::Context popped = nullptr;
  if (pushed_) driver_->pop_context(&popped);
}

Result<void> flush_writes(const PrimaryContext& context) {
  const PrimaryContext::Current current(context);
  return context.driver().check(
      "cuFlushGPUDirectRDMAWrites",
      context.driver()->flush_writes(cuda::kFlushTargetCurrentContext, cuda::kFlushScopeOwner),
      "look at the kernel's log (dmesg) for the GPU");
}

}  // namespace pacecar
