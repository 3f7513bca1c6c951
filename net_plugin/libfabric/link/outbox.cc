#include "net_plugin/libfabric/link/outbox.h"

#include <cstring>
#include <utility>

namespace pacecar::fabric {

Outbox::Outbox(std::shared_ptr<Context> context) : context_(std::move(context)) {
  for (uint32_t place = kMessages; place > 0; --place) free_places_.push_back(place - 1);
}

Outbox::~Outbox() {
  if (connection_ == nullptr) return;
  const size_t nic = connection_->nic();
  connection_.reset();
  if (memory_ != nullptr) (void)context_->deregister_memory(nic, memory_);
}

Result<void> Outbox::open(std::unique_ptr<SendConnection> connection, const Frame& hello) {
  connection_ = std::move(connection);
  auto memory = context_->register_memory(connection_->nic(), pages_.data(), pages_.bytes());
  if (!memory) return tl::unexpected(memory.error());
  memory_ = *memory;
  uint8_t* const place = &pages_[kMessages * kMessageBytes];
  std::memcpy(place, &hello, sizeof hello);
  auto started = connection_->isend(place, sizeof hello, 0, memory_);
  if (!started) return tl::unexpected(started.error());
  parts_.push_front({.place = kMessages, .bytes = sizeof hello, .request = *started});
  ++started_;
  return {};
}

// Into the message that was begun last.
bool Outbox::gathers(size_t bytes) const {
  return parts_.size() > started_ && parts_.back().bytes + bytes <= kMessageBytes;
}

bool Outbox::fits(size_t payload) const {
  return !free_places_.empty() || gathers(frame_bytes(payload));
}

uint8_t* Outbox::add(const Frame& frame) {
  const size_t bytes = frame_bytes(frame.payload);
  if (!gathers(bytes)) {
    parts_.push_back({.place = free_places_.back()});
    free_places_.pop_back();
  }
  Part& part = parts_.back();
  uint8_t* const place = &pages_[part.place * kMessageBytes + part.bytes];
  part.bytes += bytes;
  std::memcpy(place, &frame, sizeof frame);
  return place + sizeof frame;
}

bool Outbox::answer(const Frame& frame, std::span<const uint8_t> payload) {
  if (has_room(frame.payload)) {
    uint8_t* const place = add(frame);
    if (!payload.empty()) std::memcpy(place, payload.data(), payload.size());
    return true;
  }
  if (answers_.size() == kMostAnswers) return false;
  std::vector<uint8_t>& kept = answers_.emplace_back(sizeof frame + payload.size());
  std::memcpy(kept.data(), &frame, sizeof frame);
  if (!payload.empty()) std::memcpy(kept.data() + sizeof frame, payload.data(), payload.size());
  return true;
}

Result<void> Outbox::finish() {
  while (started_ > 0 && settled(*parts_.front().request)) {
    const Part part = parts_.front();
    auto result = connection_->test(part.request);
    if (!result) return tl::unexpected(result.error());
    parts_.pop_front();
    --started_;
    if (part.place != kMessages) free_places_.push_back(part.place);  // not the hello's
  }
  return {};
}

Result<void> Outbox::start(bool patient) {
  while (!answers_.empty()) {
    const std::vector<uint8_t>& kept = answers_.front();
    Frame frame;
    std::memcpy(&frame, kept.data(), sizeof frame);
    if (!fits(frame.payload)) break;
    std::memcpy(add(frame), kept.data() + sizeof frame, frame.payload);
    answers_.pop_front();
  }
  if (connection_ == nullptr) return {};
  while (started_ < parts_.size()) {
    Part& part = parts_[started_];
    const bool last = started_ + 1 == parts_.size();
    const bool small = part.bytes < kMessageBytes / 2;
    const bool waits = patient || kMessages - free_places_.size() > kEagerMessages;
    if (last && small && waits && started_ > 0) break;
    auto started = start_part(part);
    if (!started) return tl::unexpected(started.error());
    if (!*started) break;
    ++started_;
  }
  return {};
}

Result<bool> Outbox::start_part(Part& part) {
  auto started = connection_->isend(&pages_[part.place * kMessageBytes], part.bytes, 0, memory_);
  if (!started) return tl::unexpected(started.error());
  part.request = *started;
  return *started != nullptr;
}

}  // namespace pacecar::fabric
