#include "net_plugin/libfabric/link/connections.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pacecar::fabric {

Result<void> Inbox::open() {
  RETURN_IF_ERROR(register_pages());
  connection_->set_preposted();
  for (uint32_t slot = 0; slot < requests_.size(); ++slot) RETURN_IF_ERROR(post(slot));
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
    RETURN_IF_ERROR(post((oldest_ + kMaxMessages - to_repost_) % kMaxMessages));
  }
  return {};
}

// The last message's memory holds kHello and kWake, which are never overwritten.
Outbox::Outbox(std::shared_ptr<Context> context)
    : ConnectionWithPages(std::move(context), nullptr, (kMaxMessages + 1) * kMessageBytes) {
  for (uint32_t slot = kMaxMessages; slot > 0; --slot) free_slots_.push_back(slot - 1);
}

Result<void> Outbox::open(std::unique_ptr<SendConnection> connection, const Frame& hello,
                          std::unique_ptr<SharedSender> shared) {
  connection_ = std::move(connection);
  RETURN_IF_ERROR(register_pages());
  const Frame wake{.kind = FrameKind::kWake};
  std::memcpy(greeting(0), &hello, sizeof hello);
  std::memcpy(greeting(1), &wake, sizeof wake);
  ASSIGN_OR_RETURN(auto started, connection_->isend(greeting(0), sizeof hello, 0, memory_));
  if (shared != nullptr) {  // messages added before go through it, too
    for (const Message& message : messages_) {
      std::memcpy(shared->slot(message.slot), at(message.slot), message.bytes);
    }
    shared->close_descriptor();
    shared_ = std::move(shared);
  }
  messages_.push_front({.slot = kMaxMessages, .bytes = sizeof hello, .request = started});
  ++started_;
  return {};
}

// Whether this many bytes fit into the last message, which is not posted yet.
bool Outbox::gathers(size_t bytes) const {
  return messages_.size() > started_ && messages_.back().bytes + bytes <= kMessageBytes;
}

bool Outbox::fits(size_t payload) const {
  return !free_slots_.empty() || gathers(frame_bytes(payload));
}

uint8_t* Outbox::add(const Frame& frame) {
  const size_t bytes = frame_bytes(frame.payload);
  if (!gathers(bytes)) {
    messages_.push_back({.slot = free_slots_.back()});
    free_slots_.pop_back();
  }
  Message& message = messages_.back();
  uint8_t* const slot = at(message.slot) + message.bytes;
  message.bytes += bytes;
  std::memcpy(slot, &frame, sizeof frame);
  return slot + sizeof frame;
}

bool Outbox::reply(const Frame& frame, std::span<const uint8_t> payload) {
  if (has_room(frame.payload)) {
    std::ranges::copy(payload, add(frame));
    return true;
  }
  if (replies_.size() == kMaxReplies || reply_bytes_ >= kMaxReplyBytes) return false;
  reply_bytes_ += payload.size();
  replies_.push_back({frame, {payload.begin(), payload.end()}});
  return true;
}

Result<void> Outbox::finish() {
  for (; !wakes_.empty() && settled(*wakes_.front()); wakes_.pop_front()) {
    (void)connection_->test(wakes_.front());
  }
  while (started_ > 0) {
    const Message message = messages_.front();
    if (message.request == nullptr) {
      ASSIGN_OR_RETURN(const uint64_t consumed, shared_->consumed());
      if (consumed <= message.number) break;
    } else {
      if (!settled(*message.request)) break;
      RETURN_IF_ERROR(connection_->test(message.request));
    }
    messages_.pop_front();
    --started_;
    const bool hello = message.slot == kMaxMessages;  // its memory is not reused
    if (!hello) free_slots_.push_back(message.slot);
  }
  return {};
}

bool Outbox::may_gather_more(Coming coming) const {
  if (started_ == 0 || messages_.back().bytes >= kMostGathered) return false;
  const bool many = kMaxMessages - free_slots_.size() > kEagerMessages;
  return coming == Coming::kMore || (coming == Coming::kUnknown && many);
}

Result<void> Outbox::start(Coming coming) {
  for (; !replies_.empty() && fits(replies_.front().payload.size()); replies_.pop_front()) {
    std::ranges::copy(replies_.front().payload, add(replies_.front().frame));
    reply_bytes_ -= replies_.front().payload.size();
  }
  if (connection_ == nullptr) return {};
  while (started_ < messages_.size()) {
    Message& message = messages_[started_];
    const bool last = started_ + 1 == messages_.size();
    if (last && may_gather_more(coming)) break;
    if (shared_ != nullptr) {
      message.number = shared_->posted();
      shared_->post(message.slot, message.bytes);
    } else {
      ASSIGN_OR_RETURN(message.request,
                       connection_->isend(at(message.slot), message.bytes, 0, memory_));
      if (message.request == nullptr) break;
    }
    ++started_;
  }
  if (shared_ == nullptr || !shared_->must_wake_receiver()) return {};
  // A peer that cannot be woken wakes by itself soon, or has ended.
  const auto woken = connection_->isend(greeting(1), sizeof(Frame), 0, memory_);
  if (!woken || *woken == nullptr) return {};
  wakes_.push_back(*woken);
  shared_->receiver_is_woken();
  return {};
}

Result<void> PutBox::open(const Frame& hello) {
  RETURN_IF_ERROR(register_pages());
  send_frame(hello);
  return start();
}

void PutBox::send_frame(const Frame& frame) {
  --frames_free_;
  const uint32_t slot = std::exchange(next_slot_, (next_slot_ + 1) % kFrames);
  pages_[slot] = frame;
  entries_.push_back({.slot = slot});
}

Result<void> PutBox::start() {
  while (started_ < entries_.size()) {
    Entry& entry = entries_[started_];
    const Put& put = entry.put;
    ASSIGN_OR_RETURN(auto started,
                     entry.is_put
                         ? connection_->iput(put.data, put.size, put.memory, put.window, 0)
                         : connection_->isend(&pages_[entry.slot], sizeof(Frame), 0, memory_));
    if (started == nullptr) return {};
    entry.request = started;
    ++started_;
  }
  return {};
}

}  // namespace pacecar::fabric
