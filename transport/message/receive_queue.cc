#include "transport/message/receive_queue.h"

#include <algorithm>
#include <utility>

namespace pacecar {

bool ReceiveQueue::post(const ReceiveOperation& operation, uint64_t grant, ReceiveTable& table) {
  if (requests_.full()) return false;
  requests_.push(Receive{.request = operation.request, .first = posted_, .count = operation.count});
  for (uint32_t i = 0; i < operation.count; ++i) {
    const ReceiveOperation::Buffer& buffer = operation.buffers[i];
    table.slots[posted_ % kCtsSlots] = CtsSlot{
        .address = reinterpret_cast<uint64_t>(buffer.data),
        .size = buffer.size,
        .grant = grant,
        .key = buffer.key,
        .tag = buffer.tag,
        .group_size = static_cast<uint16_t>(operation.count),
        .group_index = static_cast<uint16_t>(i),
        .sequence = posted_ + 1,
    };
    buffers_[posted_ % kCtsSlots] = Buffer{.size = buffer.size, .key = buffer.key, .active = true};
    posted_bytes_ += buffer.size;
    ++posted_;
  }
  return true;
}

ReceiveQueue::Run ReceiveQueue::next_run() const {
  const auto first = static_cast<uint32_t>(told_ % kCtsSlots);
  const uint64_t untold = posted_ - told_;
  return {first, static_cast<uint32_t>(std::min<uint64_t>(untold, kCtsSlots - first))};
}

ReceiveQueue::Arrival ReceiveQueue::on_write(const Immediate& immediate, Bytes bytes,
                                             Bytes* finished, uint32_t* messages) {
  ++moves_;
  *finished = 0;
  *messages = 0;
  Buffer& buffer = buffers_[immediate.slot];
  if (!buffer.active) return Arrival::kProtocolError;
  ++buffer.writes_seen;
  buffer.received += bytes;
  if (buffer.received > buffer.size) return Arrival::kProtocolError;
  const bool given_up = immediate.writes == Immediate::kTooLong;
  if (given_up) buffer.failed = true;
  if (immediate.writes != 0 && !given_up) buffer.writes = immediate.writes;
  if (!given_up && (buffer.writes == 0 || buffer.writes_seen < buffer.writes)) return Arrival::kOk;

  buffer.active = false;
  posted_bytes_ -= buffer.size;
  *finished = buffer.size;
  Receive* receive = receive_of(immediate.slot);
  if (receive == nullptr) return Arrival::kProtocolError;
  if (buffer.failed) receive->failure = MessageFailure::kTooLong;
  ++receive->done;
  *messages = 1;
  complete_in_order();
  return Arrival::kOk;
}

ReceiveQueue::Receive* ReceiveQueue::receive_of(uint32_t slot) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    Receive& receive = requests_[i];
    if ((slot - receive.first) % kCtsSlots < receive.count) return &receive;
  }
  return nullptr;
}

void ReceiveQueue::complete_in_order() {
  while (!requests_.empty() && requests_.front().done == requests_.front().count) {
    finish(requests_.front());
    completed_ += requests_.front().count;
    requests_.pop_front();
  }
}

void ReceiveQueue::finish(Receive& receive) {
  MessageRequest* request = receive.request;
  if (request == nullptr) return;
  receive.request = nullptr;
  request->failure = receive.failure;
  request->count = static_cast<uint8_t>(receive.count);
  for (uint32_t i = 0; i < receive.count; ++i) {
    request->sizes[i] = buffers_[(receive.first + i) % kCtsSlots].received;
  }
  request->set(receive.failure == MessageFailure::kNone ? MessageRequest::State::kDone
                                                        : MessageRequest::State::kFailed);
}

void ReceiveQueue::fail(MessageFailure failure) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].failure == MessageFailure::kNone) requests_[i].failure = failure;
    finish(requests_[i]);
  }
}

Bytes ReceiveQueue::renew() {
  requests_.clear();
  for (Buffer& buffer : buffers_) buffer.active = false;
  told_ = completed_ = posted_;
  return std::exchange(posted_bytes_, 0);
}

bool ReceiveQueue::uses(uint32_t key) const {
  return std::any_of(buffers_.begin(), buffers_.end(),
                     [key](const Buffer& buffer) { return buffer.active && buffer.key == key; });
}

void ReceiveQueue::drop_requests() {
  for (size_t i = 0; i < requests_.size(); ++i) requests_[i].request = nullptr;
}

}  // namespace pacecar
