#include "bench/perf/stream.h"

#include <fmt/core.h>

#include <array>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

}  // namespace

uint32_t group_size(uint32_t rx_depth) { return divide_up(rx_depth, kMaxRequests); }

uint32_t receive_slots(uint32_t rx_depth) {
  const uint32_t group = group_size(rx_depth);
  return divide_up(rx_depth, group) * group;
}

SendStream::SendStream(std::unique_ptr<SendConnection> connection, MessageBuffer buffer,
                       uint32_t tx_depth, uint32_t rx_depth, bool validate)
    : buffer_(std::move(buffer)),
      connection_(std::move(connection)),
      requests_(tx_depth),
      group_(group_size(rx_depth)),
      validate_(validate) {}

uint64_t SendStream::stop() {
  limit_ = std::min(limit_, whole_groups());
  return limit_;
}

Result<bool> SendStream::start_one() {
  const size_t index = started_ % requests_.size();
  const auto message = buffer_.slot(index);
  if (validate_) {
    RETURN_IF_ERROR(buffer_.fill(index, started_));
  }
  ASSIGN_OR_RETURN(const auto request,
                   connection_->isend(message.data(), message.size(),
                                      static_cast<int>(started_ % group_), buffer_.memory()));
  if (request == nullptr) return false;
  requests_[index] = request;
  ++started_;
  return true;
}

Result<uint64_t> SendStream::poll() {
  uint64_t room = std::min(limit_ - started_, requests_.size() - (started_ - finished_));
  if (room < std::min(post_list_, limit_ - started_)) room = 0;
  for (; room > 0; --room) {
    ASSIGN_OR_RETURN(const auto started, start_one());
    if (!started) break;
  }
  const uint64_t before = finished_;
  while (finished_ < started_) {
    ASSIGN_OR_RETURN(const auto result, connection_->test(requests_[finished_ % requests_.size()]));
    if (!result.done) break;
    ++finished_;
  }
  return finished_ - before;
}

ReceiveStream::ReceiveStream(std::unique_ptr<ReceiveConnection> connection, MessageBuffer buffer,
                             uint32_t rx_depth, bool validate, bool echo)
    : buffer_(std::move(buffer)),
      connection_(std::move(connection)),
      group_(group_size(rx_depth)),
      slots_(receive_slots(rx_depth)),
      validate_(validate),
      echo_(echo),
      posted_requests_(slots_ / group_) {}

Result<bool> ReceiveStream::post_group() {
  const auto messages = static_cast<uint32_t>(std::min<uint64_t>(group_, limit_ - posted_));
  std::array<ReceiveBuffer, kMaxReceiveBuffers> buffers;
  PACECAR_CHECK(messages <= buffers.size());
  for (uint32_t i = 0; i < messages; ++i) {
    const auto target = slot(posted_ + i);
    // Only the last group before the limit may be shorter, so the tags of each request begin at 0.
    buffers[i] = {target.data(), target.size(), static_cast<int>(i), buffer_.memory()};
  }
  ASSIGN_OR_RETURN(const auto request, connection_->irecv({buffers.data(), messages}));
  if (request == nullptr) return false;
  posted_requests_[requests_started_ % posted_requests_.size()] = {request, messages};
  ++requests_started_;
  posted_ += messages;
  return true;
}

Result<void> ReceiveStream::check(const TestResult& result, uint32_t messages) {
  for (uint32_t i = 0; i < messages; ++i) {
    const uint64_t number = finished_ + i;
    const auto message = slot(number);
    if (static_cast<uint32_t>(result.count) != messages || result.sizes[i] != message.size()) {
      return fail(ErrorCode::kPeer,
                  fmt::format("message {} from {} has another size than the {} bytes of the test: "
                              "run the same version of pacecar at both ends",
                              number, connection_->peer(), message.size()));
    }
    if (!validate_) continue;
    ASSIGN_OR_RETURN(const auto bad, buffer_.find_mismatch(number % slots_, number));
    if (bad) {
      return fail(ErrorCode::kPeer,
                  fmt::format("data validation failed: byte {} of message {} from {} is not what "
                              "was sent, so do not trust this path with data",
                              *bad, number, connection_->peer()));
    }
  }
  return {};
}

Result<uint64_t> ReceiveStream::poll() {
  while (posted_ < limit_ && requests_started_ - requests_finished_ < posted_requests_.size()) {
    ASSIGN_OR_RETURN(const auto posted, post_group());
    if (!posted) break;
  }
  const uint64_t before = finished_;
  while (requests_finished_ < requests_started_) {
    const Posted& oldest = posted_requests_[requests_finished_ % posted_requests_.size()];
    ASSIGN_OR_RETURN(const auto result, connection_->test(oldest.request));
    if (!result.done) break;
    RETURN_IF_ERROR(check(result, oldest.messages));
    finished_ += oldest.messages;
    ++requests_finished_;
    if (echo_) break;
  }
  return finished_ - before;
}

}  // namespace pacecar::perf
