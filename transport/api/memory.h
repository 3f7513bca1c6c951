// A registration, as the interface's opaque Memory.
#pragma once

#include <memory>
#include <utility>

#include "gdr/staging.h"
#include "transport/nic/nic.h"

namespace pacecar {

class Memory {
 public:
  explicit Memory(const MemoryRegion& region) : region_(region) {}
  explicit Memory(std::shared_ptr<StagedRange> staged) : staged_(std::move(staged)) {}
  const MemoryRegion& region() const { return region_; }
  // GPU memory that the NIC does not know: its messages are copied. Null for all other.
  const std::shared_ptr<StagedRange>& staged() const { return staged_; }
  // Whether [data, data + size) lies inside.
  bool covers(const void* data, size_t size) const {
    const auto start = reinterpret_cast<uintptr_t>(data);
    const auto base = reinterpret_cast<uintptr_t>(region_.address);
    return start >= base && size <= region_.length && start - base <= region_.length - size;
  }

 private:
  MemoryRegion region_;
  std::shared_ptr<StagedRange> staged_;
};

}  // namespace pacecar
