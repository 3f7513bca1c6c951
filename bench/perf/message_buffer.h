// Registered memory for a fixed number of messages of one size, in slots that start on cache lines.
// It is host or GPU memory; the latter is only accessible by copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/perf/options.h"
#include "gdr/staging.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/result.h"

namespace pacecar::perf {

// The memory of this end's messages: host memory or GPU memory.
struct MessagePlace {
  bool huge_pages = false;                // of the host's memory
  std::shared_ptr<const CopyEngine> gpu;  // null: the host's memory
  bool dma_buf = false;                   // registers the GPU's memory as a dma-buf
};

// Errors: kNotFound (no driver, no such GPU), kSystem.
Result<MessagePlace> find_place(const TestOptions& options);

struct Unmap {
  void operator()(uint8_t* bytes) const;
  size_t length = 0;
};

class MessageBuffer {
 public:
  // Errors: kUnavailable (not enough memory or huge pages, or the NIC takes no dma-buf), and as for
  // register_memory.
  static Result<MessageBuffer> create(Context& context, size_t nic, uint64_t size, size_t slots,
                                      const MessagePlace& place = {});
  MessageBuffer(MessageBuffer&&) = default;
  ~MessageBuffer();

  std::span<uint8_t> slot(size_t index) const { return {base_ + index * stride_, size_}; }
  const Memory* memory() const { return memory_; }

  // Writes the pattern of this message (pattern.h). Errors: as for a copy to the GPU.
  Result<void> fill(size_t index, uint64_t number);
  // The offset of the first byte of a received message that differs from its pattern.
  Result<std::optional<size_t>> find_mismatch(size_t index, uint64_t number);

 private:
  MessageBuffer() = default;
  Result<MemoryRange> allocate_gpu(uint64_t length, std::shared_ptr<const CopyEngine> gpu);
  Result<MemoryRange> allocate_host(uint64_t length, bool huge);

  Context* context_ = nullptr;
  size_t nic_ = 0;
  uint64_t size_ = 0;
  uint64_t stride_ = 0;
  uint8_t* base_ = nullptr;  // the start of the memory of `bytes_` or `gpu_`
  std::unique_ptr<uint8_t[], Unmap> bytes_;
  std::unique_ptr<GpuAllocation> gpu_;
  std::vector<uint8_t> copy_;  // of a GPU's message, for the host to read
  const Memory* memory_ = nullptr;
};

}  // namespace pacecar::perf
