// The two measurements of one connection: a stream of messages with several in flight, and a
// ping-pong.
//
// A side polls without sleeping, as NCCL's progress thread does, so its CPU time has one whole
// thread in it beside what the plugin uses. The first moments are warm-up and not counted. A
// measurement ends with empty messages: a stream with as many as there are receives posted, so that
// none is left behind.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/nccl/message_slots.h"
#include "transport/base/units.h"

namespace pacecar::nccl {

// What one side saw between the end of its warm-up and the last message.
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
