#include "transport/engine/poll_loop.h"

#include <algorithm>

namespace pacecar {

size_t PollLoop::advance(Instant now) {
  port_.nic().on_time(now);
  messenger_.poll(now);
  return port_.transmit(now);
}

Instant PollLoop::next_deadline() const {
  return std::min(port_.next_deadline(), messenger_.next_deadline());
}

}  // namespace pacecar
