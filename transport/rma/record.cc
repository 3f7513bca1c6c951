#include "transport/rma/record.h"

#include "transport/base/return_if_error.h"

namespace pacecar::rma {

Result<void> Inbox::open() {
  for (uint32_t place = 0; place < kRecords; ++place) {
    RETURN_IF_ERROR(post(place));
  }
  return {};
}

Result<void> Inbox::post(uint32_t place) {
  const ReceiveBuffer buffer{
      .data = &places_[place], .size = sizeof(Record), .tag = 0, .memory = memory_};
  ASSIGN_OR_RETURN(auto started, connection_->irecv({&buffer, 1}));
  if (started == nullptr) return fail(ErrorCode::kInternal, "a connection has too few receives");
  requests_[place] = started;
  return {};
}

Result<std::optional<Record>> Inbox::next() {
  Request* const request = requests_[oldest_];
  if (request == nullptr || !settled(*request)) return std::nullopt;
  requests_[oldest_] = nullptr;
  ASSIGN_OR_RETURN(const TestResult result, connection_->test(request));
  if (result.sizes[0] != sizeof(Record)) {
    return fail(ErrorCode::kPeer, connection_->peer() +
                                      " sent an invalid record: run the same "
                                      "version of Pacecar on both sides");
  }
  const Record record = places_[oldest_];
  RETURN_IF_ERROR(post(oldest_));
  oldest_ = (oldest_ + 1) % kRecords;
  return record;
}

}  // namespace pacecar::rma
