#include "net_plugin/libfabric/link/inbox.h"

#include <utility>

#include "transport/base/return_if_error.h"

namespace pacecar::fabric {

Inbox::Inbox(std::shared_ptr<Context> context, std::unique_ptr<ReceiveConnection> connection)
    : context_(std::move(context)), connection_(std::move(connection)) {}

Inbox::~Inbox() {
  const size_t nic = connection_->nic();
  connection_.reset();
  if (memory_ != nullptr) (void)context_->deregister_memory(nic, memory_);
}

Result<void> Inbox::open() {
  ASSIGN_OR_RETURN(memory_,
                   context_->register_memory(connection_->nic(), pages_.data(), pages_.bytes()));
  for (uint32_t slot = 0; slot < requests_.size(); ++slot) {
    if (auto posted = post(slot); !posted) return posted;
  }
  return {};
}

Result<void> Inbox::post(uint32_t slot) {
  const ReceiveBuffer buffer{
      .data = &pages_[slot * kMessageBytes], .size = kMessageBytes, .tag = 0, .memory = memory_};
  ASSIGN_OR_RETURN(auto started, connection_->irecv({&buffer, 1}));
  if (started == nullptr) return fail(ErrorCode::kInternal, "a connection has too few receives");
  requests_[slot] = started;
  return {};
}

bool Inbox::turn() {
  if (tested_) return false;
  auto result = connection_->test(requests_[oldest_]);
  if (!result || result->done) tested_ = std::move(result);
  return true;
}

Result<std::span<const uint8_t>> Inbox::next() {
  if (!tested_) {
    if (!settled(*requests_[oldest_])) return std::span<const uint8_t>();
    turn();
  }
  if (!*tested_) return tl::unexpected(tested_->error());
  if ((*tested_)->sizes[0] == 0) {
    return fail(ErrorCode::kPeer, connection_->peer() + " sent an empty message");
  }
  return std::span<const uint8_t>(&pages_[oldest_ * kMessageBytes], (*tested_)->sizes[0]);
}

Result<void> Inbox::done() {
  tested_.reset();
  oldest_ = (oldest_ + 1) % kMaxMessages;
  if (++to_repost_ < kRepostBatch) return {};
  for (; to_repost_ > 0; --to_repost_) {
    const auto posted = post((oldest_ + kMaxMessages - to_repost_) % kMaxMessages);
    if (!posted) return posted;
  }
  return {};
}

}  // namespace pacecar::fabric
