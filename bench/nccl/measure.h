// The two measurements of one connection: a stream of messages with several in flight, and a
// ping-pong.
//
// A side polls without sleeping, as NCCL's progress thread does, so its CPU time includes that
// whole thread beside the plugin's use. The warm-up is not counted. A measurement ends with empty
// messages: a stream with one for each posted receive, so that no receive stays pending.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/nccl/message_slots.h"
#include "transport/base/units.h"

namespace pacecar::nccl {

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
