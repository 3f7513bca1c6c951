#include "transport/message/eager.h"

#include <bit>
#include <cstring>

#include "transport/base/check.h"

namespace pacecar {

static_assert(kEagerCells < 32, "a bit per cell");
static_assert(256 % kEagerCells == 0, "a number's last 8 bits name its cell");

void EagerSource::enable(Bytes message, uint8_t* cells, uint32_t key, const RemotePlace& remote) {
  enabled_ = message > 0;
  message_ = message;
  cells_ = cells;
  key_ = key;
  remote_ = remote;
}

uint8_t EagerSource::copy(const uint8_t* data, Bytes size) {
  PACECAR_CHECK(has_room(size));
  const auto cell = static_cast<uint8_t>(std::countr_zero(free_));
  free_ &= free_ - 1;
  if (!tiny(size)) copied_ += size;
  if (size > 0) std::memcpy(message(cell), data, size);
  return cell;
}

void EagerSource::give_back(uint8_t cell, Bytes size) {
  free_ |= 1U << cell;
  if (!tiny(size)) copied_ -= size;
}

bool EagerSource::on_freed(uint64_t count) {
  if (count > sent_) return false;
  freed_ = std::max(freed_, count);
  return true;
}

void EagerInbox::enable(Bytes message, const uint8_t* cells) {
  message_ = message;
  cells_ = message > 0 ? cells : nullptr;
}

bool EagerInbox::on_write(uint32_t number, Bytes bytes) {
  const uint64_t ahead = (number - freed_) % 256;
  if (cells_ == nullptr || ahead >= kEagerCells) return false;
  const uint32_t cell = number % kEagerCells;
  Message& message = messages_[cell];
  if (message.arrived) return false;
  const uint8_t* place = cells_ + cell * eager_cell_bytes(message_);
  message = {.data = place + sizeof(EagerHeader), .arrived = true};
  std::memcpy(&message.header, place, sizeof message.header);
  ++arrived_;
  return message.header.size <= message_ && bytes == sizeof(EagerHeader) + message.header.size;
}

EagerInbox::Message* EagerInbox::at(uint32_t index) {
  if (index >= kEagerCells) return nullptr;
  Message& message = messages_[(freed_ + index) % kEagerCells];
  return message.arrived ? &message : nullptr;
}

void EagerInbox::free_taken() {
  for (Message* oldest = at(0); oldest != nullptr && oldest->taken; oldest = at(0)) {
    *oldest = {};
    ++freed_;
  }
}

}  // namespace pacecar
