#include "gdr/gpu_allocation.h"

#include <fmt/core.h>

#include <utility>

#include "transport/base/return_if_error.h"

namespace pacecar {

Result<std::unique_ptr<GpuAllocation>> GpuAllocation::make(std::shared_ptr<const CopyEngine> engine,
                                                           size_t bytes) {
  const PrimaryContext::Current current(engine->context());
  cuda::DevicePointer address = 0;
  const cuda::Status status = engine->driver()->device_alloc(&address, bytes);
  if (status == cuda::kErrorOutOfMemory) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("the GPU has no {} MiB of free memory: ask for less, or end what else "
                            "uses it (nvidia-smi)",
                            (bytes >> 20) + 1));
  }
  RETURN_IF_ERROR(engine->driver().check("cuMemAlloc", status, "look at nvidia-smi"));
  return std::unique_ptr<GpuAllocation>(
      new GpuAllocation(std::move(engine), reinterpret_cast<uint8_t*>(address), bytes));
}

GpuAllocation::~GpuAllocation() {
  const PrimaryContext::Current current(engine_->context());
  engine_->driver()->device_free(reinterpret_cast<cuda::DevicePointer>(address_));
}

Result<void> GpuAllocation::write(uint8_t* to, std::span<const uint8_t> from) {
  return range_.copy_and_wait(CopyWay::kToDevice, to, const_cast<uint8_t*>(from.data()),
                              from.size());
}

Result<void> GpuAllocation::read(std::span<uint8_t> to, const uint8_t* from) {
  return range_.copy_and_wait(CopyWay::kToHost, from, to.data(), to.size());
}

}  // namespace pacecar
