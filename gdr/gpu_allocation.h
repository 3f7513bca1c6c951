// GpuAllocation: GPU memory that this process allocates, as an application would.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gdr/staging.h"
#include "transport/base/result.h"

namespace pacecar {

class GpuAllocation {
 public:
  // Its contents are undefined. Errors: kUnavailable (the GPU has less free memory), kSystem.
  static Result<std::unique_ptr<GpuAllocation>> make(std::shared_ptr<const CopyEngine> engine,
                                                     size_t bytes);
  ~GpuAllocation();
  GpuAllocation(const GpuAllocation&) = delete;
  GpuAllocation& operator=(const GpuAllocation&) = delete;

  // An address of the GPU: the host's processors cannot access it.
  uint8_t* address() const { return address_; }

  // Copy, and wait until the copy is done. The GPU's address must be in this allocation. Errors:
  // kSystem.
  Result<void> write(uint8_t* to, std::span<const uint8_t> from);
  Result<void> read(std::span<uint8_t> to, const uint8_t* from);

 private:
  GpuAllocation(std::shared_ptr<const CopyEngine> engine, uint8_t* address, size_t bytes)
      : engine_(std::move(engine)), address_(address), range_(engine_, address, bytes) {}

  const std::shared_ptr<const CopyEngine> engine_;
  uint8_t* const address_;
  StagedRange range_;
};

}  // namespace pacecar
