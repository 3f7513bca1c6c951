// A registration, as the interface's opaque Memory.
#pragma once

#include "transport/nic/nic.h"

namespace pacecar {

class Memory {
 public:
  explicit Memory(const MemoryRegion& region) : region_(region) {}
  const MemoryRegion& region() const { return region_; }
  // Whether [data, data + size) lies inside.
  bool covers(const void* data, size_t size) const {
    const auto start = reinterpret_cast<uintptr_t>(data);
    const auto base = reinterpret_cast<uintptr_t>(region_.address);
    return start >= base && size <= region_.length && start - base <= region_.length - size;
  }

 private:
  MemoryRegion region_;
};

}  // namespace pacecar
