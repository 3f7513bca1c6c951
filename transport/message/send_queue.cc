#include "transport/message/send_queue.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "transport/base/check.h"

namespace pacecar {
namespace {

// The largest write of any NIC. A message of more writes than its immediate counts is too long.
constexpr Bytes kMostWriteBytes = Bytes{1} << 30;
// Up to this size a separate write costs more than the receiver's copy.
constexpr Bytes kShortBytes = 1024;
constexpr uint32_t kMaxPutWrites = 64;  // of one put
static_assert(kMaxPuts * kMaxPutWrites < Immediate::kMaxWrites);

constexpr Bytes divide_up(Bytes total, Bytes part) { return (total + part - 1) / part; }

// For the receiver.
constexpr uint32_t code_of(MessageFailure failure) {
  return failure == MessageFailure::kTooLong ? Immediate::kTooLong : Immediate::kAbandoned;
}

}  // namespace

bool SendQueue::post(MessageSend& send) {
  if (pending() == kMaxSends) return false;
  if (free_.empty()) {
    send.number = static_cast<uint16_t>(sends_.size());
    sends_.push_back(&send);
  } else {
    send.number = free_.back();
    free_.pop_back();
    sends_[send.number] = &send;
  }
  send.failure = MessageFailure::kNone;
  send.slot = MessageSend::kNoSlot;
  send.posted = 0;
  send.puts = send.writes_posted = send.writes_done = 0;
  waiting_.push(&send);
  return true;
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

// The group's first free slot with this tag; nullptr: none. group_size_ is 0 when all are taken.
const CtsSlot* SendQueue::take_slot(int32_t tag) {
  for (uint32_t i = 0; i < group_size_; ++i) {
    if ((group_used_ >> i & 1) != 0 || group_[i].tag != tag) continue;
    group_used_ |= 1U << i;
    if (group_used_ == (1U << group_size_) - 1) group_size_ = 0;
    ++moves_;
    return &group_[i];
  }
  return nullptr;
}

// False if no buffer of the group is for this send.
bool SendQueue::match_one(MessageSend& send, Bytes write_bytes) {
  if (send.operation.put) return match_put(send, write_bytes);
  const CtsSlot* const slot = take_slot(send.operation.tag);
  if (slot == nullptr) return false;
  send.slot = slot->sequence - 1;
  if (joins_others(send.operation.size, *slot)) {
    send_eagerly(send, send.slot);
    return true;
  }
  const Bytes size = send.operation.size;
  const Bytes offset = send.operation.offset;
  send.target = slot->address + offset;
  send.target_key = slot->key;
  send.sizes[0] = size;
  divide(send, write_bytes, Immediate::kMaxWrites - put_writes_);
  send.puts = std::exchange(put_writes_, 0);
  if (size > slot->size || offset > slot->size - size || send.write_bytes > kMostWriteBytes) {
    send.target = slot->address;
    give_up(send, MessageFailure::kTooLong);
  } else {
    advertised_late_ = eager_.tiny(size);
    if (copy(send)) return true;
  }
  matched_.push(send.number);
  return true;
}

// A put counts for the slot of the next message. Connections for puts usually post receives of one
// buffer, so the group has one slot.
bool SendQueue::match_put(MessageSend& send, Bytes write_bytes) {
  if (group_size_ == 0) return false;
  ++moves_;
  send.slot = group_[static_cast<uint32_t>(std::countr_one(group_used_))].sequence - 1;
  send.target = send.operation.remote.address;
  send.target_key = send.operation.remote.key;
  divide(send, write_bytes, kMaxPutWrites);
  if (send.write_bytes > kMostWriteBytes) {
    give_up(send, MessageFailure::kTooLong);
  } else {
    put_writes_ += send.writes;
  }
  matched_.push(send.number);
  return true;
}

// Divides a send into writes of `write_bytes`, or of more where there would be too many.
void SendQueue::divide(MessageSend& send, Bytes write_bytes, uint32_t most_writes) {
  const Bytes size = send.operation.size;
  if (size <= write_bytes) {
    send.write_bytes = write_bytes;
    send.writes = 1;
    return;
  }
  send.write_bytes = std::max(write_bytes, divide_up(size, most_writes));
  send.writes = static_cast<uint32_t>(divide_up(size, send.write_bytes));
}

// Whether a send of this size can share a write with others.
bool SendQueue::joins_others(Bytes size, const CtsSlot& slot) const {
  if (size > kShortBytes || size > slot.size || !eager_.takes(size)) return false;
  return eager_.joins_train(size) || waiting_.size() > 1;
}

// Called when all known slots are taken. The message then goes to the first later slot of its tag:
// both sides agree on it, however slots and messages overtake each other.
void SendQueue::send_ahead() {
  while (waiting() && !ahead_.full()) {
    MessageSend& send = *waiting_.front();
    if (!eager_.takes(send.operation.size)) return;
    waiting_.pop_front();
    ahead_.push(send.operation.tag);
    ++moves_;
    send_eagerly(send, next_sequence_);
  }
}

// The first message of a train has the write.
void SendQueue::send_eagerly(MessageSend& send, uint64_t next_slot) {
  const SendOperation& operation = send.operation;
  const bool joins = eager_.joins_train(operation.size);
  const uint8_t cell = eager_.send(operation.data, operation.size, next_slot, operation.tag);
  advertised_late_ = true;
  if (!joins) matched_.push(kFirstCell + cell);
  finish(send);
}

// False: the message takes several writes, or has no room: the NIC reads the application's memory.
bool SendQueue::copy(MessageSend& send) {
  const SendOperation& operation = send.operation;
  if (send.writes > 1 || !eager_.has_room(operation.size)) return false;
  const uint8_t cell = eager_.copy(operation.data, operation.size, {send.target, send.target_key},
                                   static_cast<uint32_t>(send.slot % kCtsSlots));
  matched_.push(kFirstCell + cell);
  finish(send);
  return true;
}

uint64_t SendQueue::wanted_slots() const {
  if (!advertised_late_ || !waiting() || group_size_ != 0) return 0;
  const Bytes size = waiting_.front()->operation.size;
  const bool goes_ahead = !ahead_.full() && eager_.tiny(size) && eager_.will_take(size);
  return goes_ahead ? 0 : next_sequence_ + ahead_.size() + 1;
}

// A last, empty write ends the message at the receiver.
void SendQueue::give_up(MessageSend& send, MessageFailure failure) {
  send.failure = failure;
  send.writes = send.writes_posted + 1;
}

bool SendQueue::next_write(uint32_t connection, WorkRequest* write) {
  if (matched_.empty()) return false;
  const uint16_t number = matched_.front();
  if (number >= kFirstCell) {
    *write = eager_.write(static_cast<uint8_t>(number - kFirstCell), connection);
    write->id = number;
    return true;
  }
  const MessageSend& send = *sends_[number];
  const bool given_up = send.failure != MessageFailure::kNone;
  if (given_up && send.writes_done < send.writes_posted) return false;
  const bool last = send.writes_posted + 1 == send.writes;
  const Bytes left = given_up ? 0 : send.operation.size - send.posted;
  const Immediate immediate{
      .connection = connection,
      .slot = static_cast<uint32_t>(send.slot % kCtsSlots),
      .writes = given_up             ? code_of(send.failure)
                : send.operation.put ? Immediate::kPut
                : last               ? send.writes + send.puts
                                     : 0,
  };
  *write = WorkRequest{
      .id = number,
      .local = send.operation.data + send.posted,
      .remote = send.target + send.posted,
      .length = std::min(left, send.write_bytes),
      .local_key = send.operation.key,
      .remote_key = send.target_key,
      .immediate = immediate.pack(),
      .opcode = Opcode::kWriteWithImm,
      .awaited = send.operation.awaited,
      .host = send.operation.host,
  };
  return true;
}

Bytes SendQueue::on_posted() {
  const uint16_t number = matched_.front();
  ++outstanding_;
  if (number >= kFirstCell) {
    matched_.pop_front();
    return eager_.on_left(static_cast<uint8_t>(number - kFirstCell));
  }
  MessageSend& send = *sends_[number];
  const bool given_up = send.failure != MessageFailure::kNone;
  const Bytes left = std::min(send.operation.size - send.posted, send.write_bytes);
  const Bytes bytes = given_up ? 0 : left;
  send.posted += bytes;
  if (++send.writes_posted == send.writes) matched_.pop_front();
  return bytes;
}

uint32_t SendQueue::on_write_done(uint32_t number, CompletionStatus status) {
  ++moves_;
  --outstanding_;
  if (status == CompletionStatus::kOk) ++arrived_;
  if (number >= kFirstCell) return eager_.on_write_done(static_cast<uint8_t>(number - kFirstCell));
  PACECAR_CHECK(number < sends_.size());
  if (sends_[number] == nullptr) return 0;  // dropped, or failed before
  MessageSend& send = *sends_[number];
  ++send.writes_done;
  if (send.failure == MessageFailure::kNone && status != CompletionStatus::kOk) {
    send.failure = status == CompletionStatus::kMemoryGone ? MessageFailure::kMemoryGone
                                                           : MessageFailure::kPeerRefused;
    if (send.writes_posted < send.writes) {
      give_up(send, send.failure);
    } else if (status == CompletionStatus::kMemoryGone) {
      // A later put of the same message may end it.
      cannot_end_ |= !gives_up() || sends_[matched_.front()]->slot != send.slot;
    }
  }
  if (send.writes_done < send.writes) return 0;
  finish(send);
  return 1;
}

void SendQueue::on_peer_closed(uint64_t completed_slots) {
  for (MessageSend* const send : sends_) {
    if (send == nullptr) continue;
    const bool arrived = send->slot != MessageSend::kNoSlot && send->slot < completed_slots;
    if (!arrived && send->failure == MessageFailure::kNone) {
      send->failure = MessageFailure::kPeerClosed;
    }
    finish(*send);
  }
  clear();
}

void SendQueue::fail(MessageFailure failure) {
  for (MessageSend* const send : sends_) {
    if (send == nullptr) continue;
    send->failure = failure;
    finish(*send);
  }
  clear();
}

// Nothing more is posted.
void SendQueue::clear() {
  waiting_.clear();
  ahead_.clear();
  matched_.clear();
}

void SendQueue::renew(uint64_t next_slot) {
  PACECAR_CHECK(outstanding_ == 0);
  SendQueue renewed;  // no lane sends ahead
  renewed.next_sequence_ = next_slot;
  renewed.arrived_ = arrived_;
  renewed.moves_ = moves_;
  *this = std::move(renewed);
}

void SendQueue::forget_memory(uint32_t key) {
  waiting_.erase_if([&](MessageSend* send) {
    if (send->operation.key != key) return false;
    send->failure = MessageFailure::kMemoryGone;
    finish(*send);
    return true;
  });
  for (size_t i = 0; i < matched_.size(); ++i) {
    if (matched_[i] >= kFirstCell) continue;
    MessageSend& send = *sends_[matched_[i]];
    if (send.operation.key == key) give_up(send, MessageFailure::kMemoryGone);
  }
}

void SendQueue::drop_requests() {
  if (pending() == 0) return;
  std::ranges::fill(sends_, nullptr);
  free_.resize(sends_.size());  // the numbers do not matter: no further send comes
  clear();
}

// Completes the application's request, which must not be touched afterwards.
void SendQueue::finish(MessageSend& send) {
  sends_[send.number] = nullptr;
  free_.push_back(send.number);
  send.count = 1;
  send.sizes[0] = send.operation.size;
  send.set(send.failure == MessageFailure::kNone ? MessageRequest::State::kDone
                                                 : MessageRequest::State::kFailed);
}

}  // namespace pacecar
