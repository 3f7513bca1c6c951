#include "transport/message/eager.h"

#include <bit>
#include <cstring>

#include "transport/base/check.h"

namespace pacecar {

static_assert(EagerCells::kCells < 32, "a bit per cell; numbers modulo 32 tell messages apart");

void EagerSource::enable(const EagerCells& cells, uint8_t* memory, uint32_t key,
                         const RemotePlace& remote) {
  cells_ = cells;
  memory_ = memory;
  key_ = key;
  remote_ = remote;
}

uint8_t EagerSource::copy(const uint8_t* data, Bytes size) {
  PACECAR_CHECK(has_room(size));
  const auto cell = static_cast<uint8_t>(std::countr_zero(fitting(size) & ~(copies_ | away_)));
  copies_ |= 1U << cell;
  uint8_t* const place = memory_ + cells_.offset(cell) + sizeof(EagerHeader);
  if (size > 0) std::memcpy(place, data, size);
  return cell;
}

void EagerSource::send(uint8_t cell, uint64_t next_slot, Bytes size, int32_t tag) {
  const EagerHeader header{.next_slot = next_slot,
                           .number = static_cast<uint32_t>(sent_),
                           .size = static_cast<uint32_t>(size),
                           .tag = tag};
  std::memcpy(memory_ + cells_.offset(cell), &header, sizeof header);
  away_ |= 1U << cell;
  cell_of_[sent_++ % cell_of_.size()] = cell;
}

bool EagerSource::on_freed(uint64_t count) {
  if (count > sent_) return false;
  for (; freed_ < count; ++freed_) away_ &= ~(1U << cell_of_[freed_ % cell_of_.size()]);
  return true;
}

void EagerInbox::enable(const EagerCells& cells, const uint8_t* memory) {
  cells_ = cells;
  memory_ = memory;
}

bool EagerInbox::on_write(uint32_t cell, Bytes bytes) {
  if (cell >= EagerCells::kCells || cells_.bytes() == 0) return false;
  if ((occupied_ >> cell & 1) != 0 || bytes < sizeof(EagerHeader)) return false;
  const uint8_t* const place = memory_ + cells_.offset(cell);
  EagerHeader header;
  std::memcpy(&header, place, sizeof header);
  const uint32_t ahead = header.number - static_cast<uint32_t>(freed_);
  if (ahead >= EagerCells::kCells || message(freed_ + ahead).arrived) return false;
  if (header.size > cells_.capacity(cell) || bytes != sizeof header + header.size) return false;
  occupied_ |= 1U << cell;
  message(freed_ + ahead) = {
      .header = header, .data = place + sizeof header, .cell = cell, .arrived = true};
  return true;
}

EagerInbox::Message* EagerInbox::at(uint32_t index) {
  Message& place = message(freed_ + index);
  return index < EagerCells::kCells && place.arrived ? &place : nullptr;
}

void EagerInbox::free_taken() {
  for (Message* oldest = at(0); oldest != nullptr && oldest->taken; oldest = at(0)) {
    ++(oldest->cell < EagerCells::kTinyCells ? untold_tiny_ : untold_large_);
    occupied_ &= ~(1U << oldest->cell);
    *oldest = {};
    ++freed_;
  }
}

}  // namespace pacecar
