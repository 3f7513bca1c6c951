#include "transport/message/receive_queue.h"

#include <algorithm>
#include <utility>

#include "transport/base/polled_memory.h"

namespace pacecar {

bool ReceiveQueue::post(const ReceiveOperation& operation) {
  if (requests_.full()) return false;
  requests_.push(Receive{.request = operation.request, .first = posted_, .count = operation.count});
  for (uint32_t i = 0; i < operation.count; ++i) {
    const ReceiveOperation::Buffer& buffer = operation.buffers[i];
    if (!used(posted_)) buffers_.emplace_back();
    buffers_[place(posted_++)] = Buffer{.data = buffer.data,
                                        .remote = buffer.remote,
                                        .size = buffer.size,
                                        .key = buffer.key,
                                        .tag = buffer.tag,
                                        .group_size = static_cast<uint8_t>(operation.count),
                                        .group_index = static_cast<uint8_t>(i),
                                        .active = true};
    posted_bytes_ += buffer.size;
  }
  return true;
}

// A slot is not overwritten while the peer may still have to read it, or while its write may be
// retransmitted.
ReceiveQueue::Run ReceiveQueue::next_run() const {
  const auto first = static_cast<uint32_t>(advertised_ % kCtsSlots);
  const uint64_t end = std::min(posted_, read_by_peer_ + kCtsSlots);
  return {first, static_cast<uint32_t>(std::min<uint64_t>(end - advertised_, kCtsSlots - first))};
}

void ReceiveQueue::write(const Run& run, uint64_t grant, ReceiveTable& table) const {
  for (uint32_t i = 0; i < run.count; ++i) {
    const Buffer& buffer = buffers_[place(advertised_ + i)];
    table.slots[run.first + i] = CtsSlot{
        .address = buffer.remote,
        .size = buffer.size,
        .key = buffer.key,
        .tag = buffer.tag,
        .first_sequence = advertised_ + i + 1,
        .group_size = buffer.group_size,
        .group_index = buffer.group_index,
        .eager_freed = inbox_.freed(),
        .grant = grant,
        .sequence = advertised_ + i + 1,
    };
  }
}

void ReceiveQueue::on_run_posted(uint32_t count) {
  advertised_ += count;
  inbox_.on_reported();
}

bool ReceiveQueue::urgent(uint64_t wanted) const {
  if (wanted > advertised_) return true;
  if (advertises_late_ && !inbox_.many_unreported()) return false;
  return advertised_ - completed_ <= posted_ - advertised_;
}

ReceiveQueue::Arrival ReceiveQueue::on_write(const Immediate& immediate, Bytes bytes,
                                             Progress* progress) {
  ++moves_;
  *progress = {.payload = bytes};
  if (immediate.writes == Immediate::kEager) {
    if (!inbox_.on_write(immediate.slot, bytes, &progress->payload)) return Arrival::kProtocolError;
    advertises_late_ = true;
    return take_eager(progress);
  }
  // The newest advertised slot with that number.
  const uint64_t slot = advertised_ - 1 - (advertised_ - 1 - immediate.slot) % kCtsSlots;
  if (slot >= advertised_ || !buffers_[place(slot)].active) return Arrival::kProtocolError;
  Buffer& buffer = buffers_[place(slot)];
  read_by_peer_ = std::max(read_by_peer_, slot + 1);
  ++buffer.writes_seen;
  const bool put = immediate.writes == Immediate::kPut;
  if (!put) buffer.received += bytes;
  if (buffer.received > buffer.size) return Arrival::kProtocolError;
  const bool given_up =
      immediate.writes == Immediate::kTooLong || immediate.writes == Immediate::kAbandoned;
  if (given_up) {
    buffer.failure = immediate.writes == Immediate::kTooLong ? MessageFailure::kTooLong
                                                             : MessageFailure::kPeerAbandoned;
  }
  if (immediate.writes != 0 && !given_up && !put) buffer.writes = immediate.writes;
  if (!given_up && (buffer.writes == 0 || buffer.writes_seen < buffer.writes)) return Arrival::kOk;
  advertises_late_ = inbox_.tiny(buffer.received);
  return complete(buffer, progress);
}

ReceiveQueue::Arrival ReceiveQueue::take_eager(Progress* progress) {
  // In the order of sending, so that of each tag the oldest comes first.
  for (uint32_t i = 0; EagerInbox::Message* message = inbox_.at(i); ++i) {
    if (message->taken) continue;
    const EagerHeader& header = message->header;
    if (header.next_slot > advertised_) return Arrival::kProtocolError;
    read_by_peer_ = std::max(read_by_peer_, header.next_slot);
    Buffer* buffer = buffer_for(header);
    if (buffer == nullptr) continue;
    if (!buffer->active || buffer->writes_seen > 0) return Arrival::kProtocolError;
    message->taken = buffer->eager = true;
    if (strict_ && header.size > buffer->size) {
      buffer->failure = MessageFailure::kTooLong;
    } else {
      buffer->received = std::min<Bytes>(header.size, buffer->size);
      ordered_copy(buffer->data, message->data, buffer->received);
    }
    if (complete(*buffer, progress) != Arrival::kOk) return Arrival::kProtocolError;
    // More eager messages than may go ahead of their buffers.
    if (completed_ > advertised_ + EagerCells::kMessages) return Arrival::kProtocolError;
  }
  inbox_.free_taken();
  return Arrival::kOk;
}

ReceiveQueue::Buffer* ReceiveQueue::buffer_for(const EagerHeader& header) {
  for (uint64_t slot = std::max(header.next_slot, completed_); slot < posted_; ++slot) {
    Buffer& buffer = buffers_[place(slot)];
    if (buffer.tag == header.tag && !buffer.eager) return &buffer;
  }
  return nullptr;
}

// Completes a buffer that is filled, or that failed.
ReceiveQueue::Arrival ReceiveQueue::complete(Buffer& buffer, Progress* progress) {
  buffer.active = false;
  posted_bytes_ -= buffer.size;
  progress->finished += buffer.size;
  Receive* receive = receive_of(buffer);
  if (receive == nullptr) return Arrival::kProtocolError;
  if (buffer.failure != MessageFailure::kNone) receive->failure = buffer.failure;
  ++receive->done;
  ++progress->messages;
  complete_in_order();
  return Arrival::kOk;
}

ReceiveQueue::Receive* ReceiveQueue::receive_of(const Buffer& buffer) {
  const auto at = static_cast<uint64_t>(&buffer - buffers_.data());
  for (size_t i = 0; i < requests_.size(); ++i) {
    Receive& receive = requests_[i];
    if (place(at - receive.first) < receive.count) return &receive;
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
    request->sizes[i] = buffers_[place(receive.first + i)].received;
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
  advertised_ = completed_ = read_by_peer_ = posted_;
  return std::exchange(posted_bytes_, 0);
}

bool ReceiveQueue::uses(uint32_t key) const {
  return std::ranges::any_of(
      buffers_, [key](const Buffer& buffer) { return buffer.active && buffer.key == key; });
}

void ReceiveQueue::drop_requests() {
  for (size_t i = 0; i < requests_.size(); ++i) requests_[i].request = nullptr;
}

}  // namespace pacecar
