// The part of RcRequester for the end of a connection, and for continuing over the next one.
#include <utility>

#include "transport/softnic/rc/rc_requester.h"

namespace pacecar {

void RcRequester::stop(CompletionStatus status) {
  fail(status);
  in_flight_ = 0;
  reading_.clear();
  pieces_.clear();
  samples_.clear();
}

Bytes RcRequester::abandon() {
  if (failure_ == CompletionStatus::kMemoryGone) fail_oldest(failure_);
  return std::exchange(unacknowledged_bytes_, 0);
}

std::optional<Bytes> RcRequester::restart(uint32_t peer_queue_pair, uint64_t first_psn,
                                          uint64_t received) {
  uint64_t most = confirmed_;
  for (uint64_t request = oldest_; request < end_of_requests(); ++request) {
    const Posted& sent = posted(request);
    if (!sent.started || sent.end() > highest_) break;
    most += sent.counted() ? 1 : 0;
  }
  if (received < confirmed_ || received > most) return std::nullopt;
  uint64_t covered = received - confirmed_;  // writes with immediate, and all before them
  Bytes arrived = 0;
  unacknowledged_bytes_ = 0;
  for (uint64_t request = oldest_; request < end_of_requests(); ++request) {
    Posted& again = posted(request);
    // The response to a read may have been lost.
    const bool has_arrived = covered > 0 && !again.over && !again.is_read();
    if (has_arrived) {
      covered -= again.counted() ? 1 : 0;
      arrived += again.work_request.length;
    } else if (again.revoked && !again.over) {
      again.status = CompletionStatus::kMemoryGone;
    }
    again.over |= has_arrived || again.revoked;
    if (!again.over && !again.is_read()) unacknowledged_bytes_ += again.work_request.length;
    again.started = false;
  }
  config_.peer_queue_pair = peer_queue_pair;
  begin_at(first_psn);
  return arrived;
}

void RcRequester::begin_at(uint64_t psn) {
  unacknowledged_ = next_ = highest_ = allocated_ = psn;
  cursor_ = oldest_;
  confirmed_ = 0;
  probe_mark_ = 0;
  probes_ = not_ready_ = unasked_ = 0;
  probe_ = gone_back_ = receiver_waits_ = congested_ = false;
  failure_ = CompletionStatus::kOk;
  advance_cursors();
}

}  // namespace pacecar
