// One end of a plugin's connection with its registered buffers, one per message in flight.
// Errors end the measurement: they are thrown as std::runtime_error, with the plugin's sentence.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <utility>

#include "bench/nccl/plugin.h"

namespace pacecar::nccl {

template <typename T>
T value_or_throw(Result<T>&& result) {
  if (!result) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

class MessageSlots {
 public:
  MessageSlots(const Plugin& plugin, void* comm, size_t message_bytes, size_t slots);
  ~MessageSlots();
  MessageSlots(const MessageSlots&) = delete;
  MessageSlots& operator=(const MessageSlots&) = delete;

  // Start an operation on a slot; nullptr means "full, again later".
  void* send(size_t slot, size_t bytes) const;
  void* receive(size_t slot) const;
  // True once, when the request is done; `bytes` then tells how many were moved.
  bool test(void* request, size_t* bytes) const;

 private:
  std::span<std::byte> slot_data(size_t slot) const;

  const Plugin& plugin_;
  void* comm_;
  size_t message_bytes_;
  std::span<std::byte> memory_;
  void* registration_ = nullptr;
};

}  // namespace pacecar::nccl
