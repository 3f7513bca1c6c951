#include "transport/message/receive_queue.h"

#include <algorithm>
#include <span>
#include <utility>

#include "transport/base/polled_memory.h"

namespace pacecar {

bool ReceiveQueue::post(MessageReceive& receive) {
  if (requests_.full()) return false;
  receive.failure = MessageFailure::kNone;
  receive.first_slot = posted_;
  receive.buffers_done = 0;
  requests_.push(&receive);
  for (uint8_t i = 0; i < receive.count; ++i) {
    if (posted_ < places_ && slots_.size() <= posted_) slots_.emplace_back();
    at(posted_++) = {&receive, receive.buffers[i].tag, receive.count, i};
    posted_bytes_ += receive.buffers[i].size;
  }
  return true;
}

// A slot is not overwritten while the peer may have to read it, or its write may be retransmitted.
ReceiveQueue::Run ReceiveQueue::next_run() const {
  const auto first = static_cast<uint32_t>(advertised_ % kCtsSlots);
  const uint64_t end = std::min(posted_, read_by_peer_ + kCtsSlots);
  return {first, static_cast<uint32_t>(std::min<uint64_t>(end - advertised_, kCtsSlots - first))};
}

// A filled buffer needs no address: its slot only tells the peer which message went there.
void ReceiveQueue::write(const Run& run, uint64_t grant, ReceiveTable& table) const {
  constexpr MessageReceive::Buffer kFilled;
  for (uint32_t i = 0; i < run.count; ++i) {
    const Slot& slot = at(advertised_ + i);
    const MessageReceive::Buffer& buffer =
        slot.receive == nullptr ? kFilled : slot.receive->buffers[slot.group_index];
    table.slots[run.first + i] = CtsSlot{
        .address = buffer.remote,
        .size = buffer.size,
        .key = buffer.key,
        .tag = slot.tag,
        .first_sequence = advertised_ + i + 1,
        .group_size = slot.group_size,
        .group_index = slot.group_index,
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
  return 2 * advertised_ <= posted_ + completed_;
}

ReceiveQueue::Arrival ReceiveQueue::on_write(const Immediate& immediate, Bytes bytes,
                                             Progress* progress) {
  ++moves_;
  *progress = {.payload = bytes};
  if (dropped_) return Arrival::kOk;
  if (immediate.writes == Immediate::kEager) {
    if (!inbox_.on_write(immediate.slot, bytes, &progress->payload)) return Arrival::kProtocolError;
    advertises_late_ = true;
    return take_eager(progress);
  }
  // The newest advertised slot with that number.
  const uint64_t slot = advertised_ - 1 - (advertised_ - 1 - immediate.slot) % kCtsSlots;
  if (slot >= advertised_ || slot < completed_) return Arrival::kProtocolError;
  MessageReceive& receive = *at(slot).receive;
  const auto index = static_cast<uint32_t>(slot - receive.first_slot);
  MessageReceive::Buffer& buffer = receive.buffers[index];
  if (buffer.done) return Arrival::kProtocolError;
  read_by_peer_ = std::max(read_by_peer_, slot + 1);
  ++buffer.writes_seen;
  const bool put = immediate.writes == Immediate::kPut;
  if (!put) receive.sizes[index] += bytes;
  if (receive.sizes[index] > buffer.size) return Arrival::kProtocolError;
  const bool given_up =
      immediate.writes == Immediate::kTooLong || immediate.writes == Immediate::kAbandoned;
  if (given_up) {
    buffer.failure = immediate.writes == Immediate::kTooLong ? MessageFailure::kTooLong
                                                             : MessageFailure::kPeerAbandoned;
  }
  if (immediate.writes != 0 && !given_up && !put) buffer.writes = immediate.writes;
  if (!given_up && (buffer.writes == 0 || buffer.writes_seen < buffer.writes)) return Arrival::kOk;
  advertises_late_ = inbox_.tiny(receive.sizes[index]);
  complete(receive, index, progress);
  return Arrival::kOk;
}

ReceiveQueue::Arrival ReceiveQueue::take_eager(Progress* progress) {
  // In the order of sending, so that of each tag the oldest comes first.
  for (uint32_t i = 0; EagerInbox::Message* message = inbox_.at(i); ++i) {
    if (message->taken) continue;
    const EagerHeader& header = message->header;
    if (header.next_slot > advertised_) return Arrival::kProtocolError;
    read_by_peer_ = std::max(read_by_peer_, header.next_slot);
    const uint64_t slot = slot_for(header);
    if (slot == posted_) continue;
    MessageReceive& receive = *at(slot).receive;
    const auto index = static_cast<uint32_t>(slot - receive.first_slot);
    MessageReceive::Buffer& buffer = receive.buffers[index];
    if (buffer.done || buffer.writes_seen > 0) return Arrival::kProtocolError;
    message->taken = buffer.eager = true;
    if (header.size > buffer.size) {
      buffer.failure = MessageFailure::kTooLong;
    } else {
      receive.sizes[index] = header.size;
      ordered_copy(buffer.data, message->data, header.size);
    }
    complete(receive, index, progress);
    // More eager messages than may go ahead of their buffers.
    if (completed_ > advertised_ + EagerCells::kMessages) return Arrival::kProtocolError;
  }
  inbox_.free_taken();
  return Arrival::kOk;
}

uint64_t ReceiveQueue::slot_for(const EagerHeader& header) const {
  for (uint64_t slot = std::max(header.next_slot, completed_); slot < posted_; ++slot) {
    const Slot& one = at(slot);
    if (one.tag == header.tag && !one.receive->buffers[one.group_index].eager) return slot;
  }
  return posted_;
}

// Completes a buffer that is filled, or that failed.
void ReceiveQueue::complete(MessageReceive& receive, uint32_t index, Progress* progress) {
  MessageReceive::Buffer& buffer = receive.buffers[index];
  buffer.done = true;
  posted_bytes_ -= buffer.size;
  progress->finished += buffer.size;
  ++progress->messages;
  if (buffer.failure != MessageFailure::kNone) receive.failure = buffer.failure;
  ++receive.buffers_done;
  while (!requests_.empty() && requests_.front()->buffers_done == requests_.front()->count) {
    finish_first();
  }
}

// Ends the oldest receive, which must not be touched afterwards.
void ReceiveQueue::finish_first() {
  MessageReceive& receive = *requests_.front();
  requests_.pop_front();
  for (uint32_t i = 0; i < receive.count; ++i) at(receive.first_slot + i).receive = nullptr;
  completed_ += receive.count;
  receive.set(receive.failure == MessageFailure::kNone ? MessageRequest::State::kDone
                                                       : MessageRequest::State::kFailed);
}

void ReceiveQueue::fail(MessageFailure failure) {
  receive_failed_ |= !requests_.empty();
  const uint64_t completed = completed_;
  while (!requests_.empty()) {
    MessageReceive& receive = *requests_.front();
    if (receive.failure == MessageFailure::kNone) receive.failure = failure;
    finish_first();
  }
  completed_ = completed;
}

void ReceiveQueue::forget_receives() {
  requests_.clear();
  for (Slot& slot : slots_) slot.receive = nullptr;
}

Bytes ReceiveQueue::renew() {
  forget_receives();
  advertised_ = completed_ = read_by_peer_ = posted_;
  return std::exchange(posted_bytes_, 0);
}

bool ReceiveQueue::uses(uint32_t key) const {
  for (size_t i = 0; i < requests_.size(); ++i) {
    const MessageReceive& receive = *requests_[i];
    const bool used = std::ranges::any_of(
        std::span(receive.buffers).first(receive.count),
        [key](const MessageReceive::Buffer& buffer) { return !buffer.done && buffer.key == key; });
    if (used) return true;
  }
  return false;
}

void ReceiveQueue::drop_requests() {
  dropped_ = true;
  forget_receives();
}

}  // namespace pacecar
