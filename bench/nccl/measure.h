// The two measurements of one connection: a stream of messages with several in flight, and a
// ping-pong.
//
// A side polls without sleeping, as NCCL's progress thread does, so its CPU time includes that
// whole thread beside the plugin's use. The warm-up is not counted. A measurement ends with empty
// messages: a stream with one for each posted receive, so that no receive stays pending.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "net_plugin/host/host.h"
#include "transport/base/units.h"

namespace pacecar::nccl {

// One end of a plugin's connection with its registered buffers, one per message in flight.
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
  // True once, when the request is done; `bytes` then tells how many were moved.
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

// The figures of one side, from the end of its warm-up to the last message.
struct StreamReport {
  uint64_t messages = 0;
  Duration elapsed;
  Duration cpu;  // of the whole process
};

StreamReport stream_send(const MessageSlots& slots, size_t bytes, size_t in_flight,
                         Duration length);
StreamReport stream_receive(const MessageSlots& slots, size_t in_flight);

constexpr size_t kPingsAhead = 32;  // receives posted, and slots that both ends need

// Half round trips of `bytes` in microseconds, sorted.
std::vector<double> ping(const MessageSlots& out, const MessageSlots& in, size_t bytes,
                         Duration length);
void pong(const MessageSlots& out, const MessageSlots& in);

}  // namespace pacecar::nccl
