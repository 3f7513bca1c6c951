#include "transport/message/send_queue.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "transport/base/check.h"

namespace pacecar {
namespace {

// The largest write that any NIC takes. A message that needs more writes of this size than its
// immediate can count is too long.
constexpr Bytes kMostWriteBytes = Bytes{1} << 30;
// Up to this size a separate write costs more than the receiver's copy.
constexpr Bytes kShortBytes = 1024;
constexpr uint32_t kMaxPutWrites = 64;  // of one put
static_assert(kMaxPuts * kMaxPutWrites < Immediate::kMaxWrites);

constexpr Bytes divide_up(Bytes total, Bytes part) { return (total + part - 1) / part; }

}  // namespace

bool SendQueue::post(const SendOperation& operation) {
  if (unreported_ == kMaxSends) return false;
  ++unreported_;
  const uint32_t number = take();
  Send& send = *std::construct_at(&sends_[number]);
  send.operation = operation;
  send.used = true;
  waiting_.push(number);
  return true;
}

uint32_t SendQueue::take() {
  if (free_.empty()) {
    sends_.emplace_back();
    return static_cast<uint32_t>(sends_.size() - 1);
  }
  const uint32_t number = free_.back();
  free_.pop_back();
  return number;
}

// Copies the next receive request's slots out of the table once all of them are there.
bool SendQueue::load_group(const SendTable& table, bool* malformed) {
  // A slot is read after its sequence numbers: the NIC may be writing it.
  const CtsSlot& arrived = table.slots[next_sequence_ % kCtsSlots];
  if (!arrived.holds(next_sequence_ + 1)) return false;
  const CtsSlot first = arrived;
  if (first.group_size == 0 || first.group_size > kMaxGroup) {
    *malformed = true;
    return false;
  }
  for (uint32_t i = 0; i < first.group_size; ++i) {
    const CtsSlot& slot = table.slots[(next_sequence_ + i) % kCtsSlots];
    if (!slot.holds(next_sequence_ + i + 1)) return false;
    group_[i] = slot;
    if (group_[i].group_size != first.group_size || group_[i].group_index != i ||
        !eager_.on_freed(group_[i].eager_freed)) {
      *malformed = true;
      return false;
    }
  }
  group_size_ = first.group_size;
  group_used_ = 0;
  next_sequence_ += group_size_;
  return true;
}

// False if no buffer of the group is for this send; group_size_ is 0 when all are taken.
bool SendQueue::match_one(uint32_t number, Bytes write_bytes) {
  Send& send = sends_[number];
  if (send.operation.put) return match_put(number, write_bytes);
  for (uint32_t i = 0; i < group_size_; ++i) {
    const CtsSlot& slot = group_[i];
    if ((group_used_ >> i & 1) != 0 || slot.tag != send.operation.tag) continue;
    group_used_ |= 1U << i;
    if (group_used_ == (1U << group_size_) - 1) group_size_ = 0;
    send.matched = true;
    ++moves_;
    if (send.eager) {
      --ahead_;
      if (send.done) {
        --resting_;
        release(number);
      }
      return true;
    }
    send.sequence = slot.sequence - 1;
    if (joins_others(send, slot)) {
      send_eagerly(number, send.sequence);
      return true;
    }
    if (!strict_) cut(send, slot);
    const Bytes size = send.operation.size;
    const Bytes offset = send.operation.offset;
    send.remote = slot.address + offset;
    send.remote_key = slot.key;
    if (MessageRequest* const request = send.operation.request; request != nullptr) {
      request->slot = send.sequence;
      request->sizes[0] = size;
    }
    divide(send, write_bytes, Immediate::kMaxWrites - put_writes_);
    send.puts = std::exchange(put_writes_, 0);
    if (size > slot.size || offset > slot.size - size || send.write_bytes > kMostWriteBytes) {
      send.remote = slot.address;
      give_up(send, MessageFailure::kTooLong);
    } else {
      advertised_late_ = eager_.tiny(size);
      copy(send);
    }
    matched_.push(number);
    return true;
  }
  return false;
}

// A put counts for the slot of the next message. Connections for puts usually post receives of one
// buffer, so the group has one slot.
bool SendQueue::match_put(uint32_t number, Bytes write_bytes) {
  if (group_size_ == 0) return false;
  Send& send = sends_[number];
  send.matched = true;
  ++moves_;
  send.sequence = group_[static_cast<uint32_t>(std::countr_one(group_used_))].sequence - 1;
  send.remote = send.operation.remote.address;
  send.remote_key = send.operation.remote.key;
  divide(send, write_bytes, kMaxPutWrites);
  if (send.write_bytes > kMostWriteBytes) {
    give_up(send, MessageFailure::kTooLong);
  } else {
    put_writes_ += send.writes;
  }
  matched_.push(number);
  return true;
}

// Divides a send into writes of `write_bytes`, or of more where there would be too many.
void SendQueue::divide(Send& send, Bytes write_bytes, uint32_t most_writes) {
  const Bytes size = send.operation.size;
  send.write_bytes = std::max(write_bytes, divide_up(size, most_writes));
  send.writes = static_cast<uint32_t>(std::max<Bytes>(divide_up(size, send.write_bytes), 1));
}

// Cuts a send to what fits in the buffer.
void SendQueue::cut(Send& send, const CtsSlot& slot) const {
  send.operation.offset = std::min(send.operation.offset, slot.size);
  send.operation.size = std::min(send.operation.size, slot.size - send.operation.offset);
}

// Whether a send can share a write with others.
bool SendQueue::joins_others(const Send& send, const CtsSlot& slot) const {
  const Bytes size = send.operation.size;
  if (size > kShortBytes || size > slot.size || !eager_.takes(size)) return false;
  return eager_.boards(size) || waiting_.size() > ahead_ + 1;
}

// Called when all known slots are taken. The message then goes to the first later slot of its tag:
// both sides agree on it, however slots and messages overtake each other.
void SendQueue::send_ahead() {
  while (waiting() && ahead_ < EagerCells::kMessages) {
    const uint32_t number = waiting_[ahead_];
    if (!eager_.takes(sends_[number].operation.size)) return;
    ++ahead_;
    ++moves_;
    send_eagerly(number, next_sequence_);
  }
}

// The first message of a train has the write; the others are done at once.
void SendQueue::send_eagerly(uint32_t number, uint64_t next_slot) {
  Send& send = sends_[number];
  SendOperation& operation = send.operation;
  const bool joins = eager_.boards(operation.size);
  send.cell = eager_.send(operation.data, operation.size, next_slot, operation.tag);
  operation.key = eager_.key();
  send.eager = true;
  advertised_late_ = true;
  finish(send);
  if (!joins) {
    send.writes = 1;
    matched_.push(number);
  } else if (send.matched) {
    release(number);
  } else {
    send.done = true;
    ++resting_;
  }
}

// False if there is no room: the NIC then reads the application's memory.
bool SendQueue::copy(Send& send) {
  SendOperation& operation = send.operation;
  if (!eager_.has_room(operation.size)) return false;
  send.cell = eager_.copy(operation.data, operation.size);
  operation.data = eager_.message(send.cell);
  operation.key = eager_.key();
  operation.host = true;
  finish(send);
  return true;
}

uint64_t SendQueue::wanted_slots() const {
  if (!advertised_late_ || !waiting() || group_size_ != 0) return 0;
  const Bytes size = sends_[waiting_[ahead_]].operation.size;
  const bool goes_ahead =
      ahead_ < EagerCells::kMessages && eager_.tiny(size) && eager_.will_take(size);
  return goes_ahead ? 0 : next_sequence_ + ahead_ + 1;
}

// A last, empty write ends the message at the receiver.
void SendQueue::give_up(Send& send, MessageFailure failure) {
  send.failure = failure;
  send.writes = send.writes_posted + 1;
}

uint32_t SendQueue::code_of(MessageFailure failure) {
  return failure == MessageFailure::kTooLong ? Immediate::kTooLong : Immediate::kAbandoned;
}

bool SendQueue::next_write(uint32_t connection, WorkRequest* write) {
  if (matched_.empty()) return false;
  const uint32_t number = matched_.front();
  const Send& send = sends_[number];
  if (send.eager) {
    *write = WorkRequest{
        .id = number,
        .local = eager_.train(send.cell),
        .remote = eager_.remote(send.cell).address,
        .length = eager_.train_bytes(send.cell),
        .local_key = eager_.key(),
        .remote_key = eager_.remote(send.cell).key,
        .immediate =
            Immediate{.connection = connection, .slot = send.cell, .writes = Immediate::kEager}
                .pack(),
        .opcode = Opcode::kWriteWithImm,
        .host = true,
    };
    return true;
  }
  const bool given_up = send.failure != MessageFailure::kNone;
  if (given_up && send.writes_done < send.writes_posted) return false;
  const bool last = send.writes_posted + 1 == send.writes;
  const Bytes left = given_up ? 0 : send.operation.size - send.posted;
  const Immediate immediate{
      .connection = connection,
      .slot = static_cast<uint32_t>(send.sequence % kCtsSlots),
      .writes = given_up             ? code_of(send.failure)
                : send.operation.put ? Immediate::kPut
                : last               ? send.writes + send.puts
                                     : 0,
  };
  *write = WorkRequest{
      .id = number,
      .local = send.operation.data + send.posted,
      .remote = send.remote + send.posted,
      .length = std::min(left, send.write_bytes),
      .local_key = send.operation.key,
      .remote_key = send.remote_key,
      .immediate = immediate.pack(),
      .opcode = Opcode::kWriteWithImm,
      .awaited = !send.reported && send.operation.awaited,
      .host = send.operation.host,
  };
  return true;
}

Bytes SendQueue::on_posted() {
  Send& send = sends_[matched_.front()];
  const bool given_up = send.failure != MessageFailure::kNone && !send.eager;
  const Bytes left = std::min(send.operation.size - send.posted, send.write_bytes);
  const Bytes bytes = given_up ? 0 : send.eager ? eager_.train_payload(send.cell) : left;
  send.posted += bytes;
  ++outstanding_;
  if (++send.writes_posted == send.writes) matched_.pop_front();
  if (send.eager) eager_.on_left(send.cell);
  return bytes;
}

uint32_t SendQueue::on_write_done(uint32_t number, CompletionStatus status) {
  if (number >= sends_.size() || !sends_[number].used) return 0;
  Send& send = sends_[number];
  ++moves_;
  --outstanding_;
  ++send.writes_done;
  if (status == CompletionStatus::kOk) ++arrived_;
  if (send.failure == MessageFailure::kNone && status != CompletionStatus::kOk) {
    send.failure = status == CompletionStatus::kMemoryGone ? MessageFailure::kMemoryGone
                                                           : MessageFailure::kPeerRefused;
    if (send.writes_posted < send.writes) give_up(send, send.failure);
  }
  if (send.writes_done < send.writes) return 0;
  const uint32_t messages = send.eager ? eager_.train_messages(send.cell) : 1;
  send.done = true;
  if (send.cell != EagerSource::kNone) eager_.on_write_done(send.cell);
  finish(send);
  if (send.eager && !send.matched) {
    ++resting_;
  } else {
    release(number);
  }
  return messages;
}

void SendQueue::on_peer_closed(uint64_t completed_slots) {
  for (Send& send : sends_) {
    if (!send.used) continue;
    const bool arrived = send.matched && !send.eager && send.sequence < completed_slots;
    if (!arrived && send.failure == MessageFailure::kNone) {
      send.failure = MessageFailure::kPeerClosed;
    }
    finish(send);
  }
}

void SendQueue::fail(MessageFailure failure) {
  for (Send& send : sends_) {
    if (!send.used) continue;
    send.failure = failure;
    finish(send);
  }
}

void SendQueue::renew(uint64_t next_slot) {
  PACECAR_CHECK(outstanding_ == 0);
  SendQueue renewed(strict_);  // no lane sends ahead
  renewed.next_sequence_ = next_slot;
  renewed.arrived_ = arrived_;
  renewed.moves_ = moves_;
  *this = std::move(renewed);
}

void SendQueue::forget_memory(uint32_t key) {
  for (size_t left = waiting_.size(); left > 0; --left) {
    const uint32_t number = waiting_.front();
    waiting_.pop_front();
    Send& send = sends_[number];
    if (send.operation.key != key) {
      waiting_.push(number);
      continue;
    }
    send.failure = MessageFailure::kMemoryGone;
    finish(send);
    release(number);
  }
  for (size_t i = 0; i < matched_.size(); ++i) {
    Send& send = sends_[matched_[i]];
    if (send.operation.key == key) give_up(send, MessageFailure::kMemoryGone);
  }
}

void SendQueue::drop_requests() {
  for (Send& send : sends_) send.operation.request = nullptr;
}

// Completes the application's request, once.
void SendQueue::finish(Send& send) {
  if (!send.reported) --unreported_;
  send.reported = true;
  MessageRequest* request = send.operation.request;
  if (request == nullptr) return;
  send.operation.request = nullptr;
  request->failure = send.failure;
  request->count = 1;
  request->sizes[0] = send.operation.size;
  request->set(send.failure == MessageFailure::kNone ? MessageRequest::State::kDone
                                                     : MessageRequest::State::kFailed);
}

void SendQueue::release(uint32_t number) {
  sends_[number].used = false;
  free_.push_back(number);
}

}  // namespace pacecar
