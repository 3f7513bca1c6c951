// Registered memory for a fixed number of messages of one size, in slots that start on cache lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/api/pacecar.hpp"

namespace pacecar::perf {

struct FreePages {
  void operator()(uint8_t* bytes) const;
  size_t mapped = 0;  // bytes; 0: of the heap
};

class MessageBuffer {
 public:
  // `huge`: in huge pages. Errors: kUnavailable when there is no memory, or no huge page;
  // register_memory's.
  static Result<MessageBuffer> create(Context& context, size_t nic, uint64_t size, size_t slots,
                                      bool huge = false);
  MessageBuffer(MessageBuffer&&) = default;
  ~MessageBuffer();

  std::span<uint8_t> slot(size_t index) const { return {bytes_.get() + index * stride_, size_}; }
  const Memory* memory() const { return memory_; }

 private:
  MessageBuffer() = default;

  Context* context_ = nullptr;
  size_t nic_ = 0;
  uint64_t size_ = 0;
  uint64_t stride_ = 0;
  std::unique_ptr<uint8_t[], FreePages> bytes_;
  const Memory* memory_ = nullptr;
};

}  // namespace pacecar::perf
