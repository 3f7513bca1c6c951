// How a hostile device dies: at one of its calls, or when a test kills it.
#pragma once

#include <cerrno>
#include <cstdint>

namespace pacecar::hostile {

struct Death {
  // What polls of its completion queues return from then on.
  enum class Polls : uint8_t { kNothing, kFlushed, kError };

  uint32_t device = 0;
  // Calls are counted from 1, over all programs that have the device open; 0: no planned death.
  uint64_t at_call = 0;
  int error = EIO;           // of every call from then on
  bool raises_event = true;  // IBV_EVENT_DEVICE_FATAL
  bool takes_posts = false;  // posts succeed and are lost; else they fail
  Polls polls = Polls::kNothing;
};

}  // namespace pacecar::hostile
