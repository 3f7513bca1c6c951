// One end of a plugin's connection with its registered buffers, one per message in flight.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "net_plugin/host/host.h"

namespace pacecar::nccl {

class MessageSlots {
 public:
  MessageSlots(const Host& host, void* comm, size_t message_bytes, size_t slots)
      : host_(host),
        comm_(comm),
        message_bytes_(message_bytes),
        buffer_(host, comm, message_bytes * slots) {
    std::ranges::fill(buffer_.bytes(), uint8_t{0x5a});  // no page fault is measured
  }

  // Start an operation on a slot; nullptr means "full, again later".
  void* send(size_t slot, size_t bytes) const {
    return host_.try_send(comm_, buffer_.part(slot * message_bytes_, bytes));
  }
  void* receive(size_t slot) const {
    return host_.try_receive(comm_, buffer_.part(slot * message_bytes_, message_bytes_));
  }
  // True once, when the request is done; `bytes` is then the number of bytes moved.
  bool test(void* request, size_t* bytes) const {
    std::array<int, 1> size{};
    const bool done = host_.test(request, size);
    *bytes = static_cast<size_t>(size.front());
    return done;
  }

 private:
  const Host& host_;
  void* comm_;
  size_t message_bytes_;
  Buffer buffer_;
};

}  // namespace pacecar::nccl
