#include "transport/engine/poll_loop.h"

#include <algorithm>

#include "transport/base/prefetch.h"

namespace pacecar {

void PollLoop::prepare() const {
  prefetch(this, 64);
  prefetch(received_.front());
  prefetch(outgoing_.front());
}

size_t PollLoop::receive(Instant now) {
  const size_t received = io_.receive(received_, now);
  nic_.on_packets(now, std::span(received_).first(received));
  return received;
}

size_t PollLoop::advance(Instant now) {
  nic_.on_time(now);
  messenger_.poll(now);
  return transmit(now);
}

size_t PollLoop::transmit(Instant now) {
  if (nic_.invalidations() != invalidations_) {  // what is left may point to what is gone
    invalidations_ = nic_.invalidations();
    outgoing_begin_ = outgoing_end_;
  }
  if (outgoing_begin_ == outgoing_end_) {
    outgoing_begin_ = 0;
    outgoing_end_ = nic_.poll_transmit(now, std::span(outgoing_).first(transmit_));
  }
  const auto left = std::span(outgoing_).subspan(outgoing_begin_, outgoing_end_ - outgoing_begin_);
  const size_t sent = left.empty() ? 0 : io_.send(left, now);
  outgoing_begin_ += sent;
  return sent;
}

Instant PollLoop::next_deadline() const {
  if (outgoing_begin_ != outgoing_end_) return Instant();
  return std::min(nic_.next_deadline(), messenger_.next_deadline());
}

}  // namespace pacecar
