// GPU memory of a test: see memory.h.
#pragma once

#include <cstdint>
#include <span>

#include "tests/support/hostile_verbs/memory.h"

namespace pacecar::hostile {

class GpuBuffer {
 public:
  explicit GpuBuffer(size_t length)
      : address_(static_cast<uint8_t*>(allocate_gpu_memory(length))), length_(length) {}
  ~GpuBuffer() { free_gpu_memory(address_); }
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  uint8_t* address() const { return address_; }
  size_t size() const { return length_; }
  std::span<uint8_t> as_gpu_sees() const { return {hostile::as_gpu_sees(address_), length_}; }

 private:
  uint8_t* address_;
  size_t length_;
};

}  // namespace pacecar::hostile
