// How a hostile device ends: at one of the calls that are made of it, or when a test says so.
#pragma once

#include <cerrno>
#include <cstdint>

namespace pacecar::hostile {

struct Death {
  // What polls of its completion queues bring from then on.
  enum class Polls : uint8_t { kNothing, kFlushed, kError };

  uint32_t device = 0;
  uint64_t at_call = 0;  // counted from 1 on, over all programs that have it open; 0: none
  int error = EIO;       // of every call from then on
  bool told = true;      // by IBV_EVENT_DEVICE_FATAL
  bool takes_posts = false;  // and nothing becomes of them; else they are refused, too
  Polls polls = Polls::kNothing;
};

}  // namespace pacecar::hostile
