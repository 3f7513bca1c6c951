// A registration, as the interface's opaque Memory: one region for each NIC of a device.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gdr/staging.h"
#include "transport/api/pacecar.hpp"
#include "transport/nic/nic.h"

namespace pacecar {

class Memory {
 public:
  // `nic`: number in Context::nics. `gpu`: the memory's GPU; nullopt: host memory.
  explicit Memory(std::vector<MemoryRegion> regions, size_t nic, std::optional<int> gpu)
      : regions_(std::move(regions)), nic_(nic), gpu_(gpu) {}
  explicit Memory(std::shared_ptr<StagedRange> staged) : regions_(1), staged_(std::move(staged)) {}
  const MemoryRegion& region(size_t member = 0) const { return regions_[member]; }
  std::span<const MemoryRegion> regions() const { return regions_; }
  // Set for GPU memory that the NIC does not reach, whose messages are copied; otherwise null.
  const std::shared_ptr<StagedRange>& staged() const { return staged_; }
  size_t nic() const { return nic_; }
  // Whether it is host memory, which the processor may read.
  bool host() const { return !gpu_ && staged_ == nullptr; }
  // The ordinal of its GPU, or kUnknownGpu.
  int gpu() const { return gpu_.value_or(kUnknownGpu); }
  bool covers(const void* data, size_t size) const {
    const auto start = reinterpret_cast<uintptr_t>(data);
    const auto base = reinterpret_cast<uintptr_t>(region().address);
    return start >= base && size <= region().length && start - base <= region().length - size;
  }

 private:
  std::vector<MemoryRegion> regions_;
  size_t nic_ = 0;
  std::optional<int> gpu_;
  std::shared_ptr<StagedRange> staged_;
};

}  // namespace pacecar
