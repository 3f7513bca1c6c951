// Registered memory for a fixed number of messages of one size, in slots that start on cache lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/api/pacecar.hpp"

namespace pacecar::perf {

class MessageBuffer {
 public:
  // Errors: kUnavailable when there is no memory; register_memory's.
  static Result<MessageBuffer> create(Context& context, size_t nic, uint64_t size, size_t slots);
  MessageBuffer(MessageBuffer&&) = default;
  ~MessageBuffer();

  std::span<uint8_t> slot(size_t index) const { return {bytes_.get() + index * stride_, size_}; }
  const Memory* memory() const { return memory_; }

 private:
  struct Free {
    void operator()(uint8_t* bytes) const;
  };
  MessageBuffer() = default;

  Context* context_ = nullptr;
  size_t nic_ = 0;
  uint64_t size_ = 0;
  uint64_t stride_ = 0;
  std::unique_ptr<uint8_t[], Free> bytes_;
  const Memory* memory_ = nullptr;
};

}  // namespace pacecar::perf
