#include "transport/rma/inbox.h"

#include <utility>

namespace pacecar::rma {

Result<void> Inbox::open() {
  for (uint32_t place = 0; place < kRecords; ++place) {
    if (auto posted = post(place); !posted) return posted;
  }
  return {};
}

Result<void> Inbox::post(uint32_t place) {
  const ReceiveBuffer buffer{
      .data = &places_[place], .size = sizeof(Record), .tag = 0, .memory = memory_};
  auto started = connection_->irecv({&buffer, 1});
  if (!started) return tl::unexpected(started.error());
  if (*started == nullptr) return fail(ErrorCode::kInternal, "a connection has too few receives");
  requests_[place] = *started;
  return {};
}

void Inbox::turn() {
  if (tested_ || requests_[oldest_] == nullptr) return;
  auto result = connection_->test(requests_[oldest_]);
  if (!result || result->done) tested_ = std::move(result);
}

Result<std::optional<Record>> Inbox::next() {
  if (!tested_) {
    if (requests_[oldest_] == nullptr || !settled(*requests_[oldest_])) return std::nullopt;
    turn();
  }
  const Result<TestResult> result = *std::exchange(tested_, std::nullopt);
  requests_[oldest_] = nullptr;
  if (!result) return tl::unexpected(result.error());
  if (result->sizes[0] != sizeof(Record)) {
    return fail(ErrorCode::kPeer, connection_->peer() +
                                      " sent what is no record: run the same "
                                      "version of Pacecar on both sides");
  }
  const Record record = places_[oldest_];
  if (auto posted = post(oldest_); !posted) return tl::unexpected(posted.error());
  oldest_ = (oldest_ + 1) % kRecords;
  return record;
}

}  // namespace pacecar::rma
