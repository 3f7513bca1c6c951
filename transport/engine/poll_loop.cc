#include "transport/engine/poll_loop.h"

#include <algorithm>

namespace pacecar {

size_t PollLoop::advance(Instant now) {
  port_.nic().on_time(now);
  messenger_.poll(now);
  // Where control writes may join data packets, both leave together; otherwise data leaves first.
  const size_t sent = port_.nic().caps().software ? 0 : port_.transmit(now);
  messenger_.inform(now);
  return sent + port_.transmit(now);
}

Instant PollLoop::next_deadline() const {
  return std::min(port_.next_deadline(), messenger_.next_deadline());
}

}  // namespace pacecar
