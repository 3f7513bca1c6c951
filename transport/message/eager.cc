#include "transport/message/eager.h"

#include <cstring>
#include <new>

#include "transport/base/check.h"
#include "transport/message/control_words.h"

namespace pacecar {

static_assert(EagerCells::kCells < 32, "a bit per cell");

void EagerSource::enable(const EagerCells& cells, uint8_t* memory, uint32_t key,
                         const RemoteAddress& remote) {
  cells_ = cells;
  memory_ = memory;
  key_ = key;
  remote_ = remote;
}

uint8_t EagerSource::take_cell(Bytes size) {
  const uint32_t free = free_cells(size);
  PACECAR_CHECK(free != 0);
  const auto cell = static_cast<uint8_t>(std::countr_zero(free));
  copies_ |= 1U << cell;
  return cell;
}

uint8_t EagerSource::copy(const uint8_t* data, Bytes size, const RemoteAddress& buffer,
                          uint32_t slot) {
  const uint8_t cell = take_cell(size);
  uint8_t* const place = memory_ + cells_.offset(cell) + sizeof(EagerHeader);
  if (size > 0) std::memcpy(place, data, size);
  trains_[cell] = {.data = place,
                   .bytes = size,
                   .payload = size,
                   .messages = 1,
                   .remote = buffer,
                   .slot = slot,
                   .writes = 1};
  return cell;
}

uint8_t EagerSource::send(const uint8_t* data, Bytes size, uint64_t next_slot, int32_t tag) {
  PACECAR_CHECK(takes(size));
  if (!joins_train(size)) {
    open_ = take_cell(size);
    away_ |= 1U << open_;
    const Bytes offset = cells_.offset(open_);
    trains_[open_] = {.data = memory_ + offset,
                      .remote = {remote_.address + offset, remote_.key},
                      .slot = open_,
                      .writes = Immediate::kEager};
  }
  Train& train = trains_[open_];
  const Bytes begin = EagerCells::next(train.bytes);
  uint8_t* const place = train.data + begin;
  ::new (place) EagerHeader{.next_slot = next_slot,
                            .number = static_cast<uint32_t>(sent_),
                            .size = static_cast<uint32_t>(size),
                            .tag = tag};
  if (size > 0) std::memcpy(place + sizeof(EagerHeader), data, size);
  train.end = ++sent_;
  train.bytes = begin + sizeof(EagerHeader) + size;
  train.payload += size;
  ++train.messages;
  return open_;
}

// An acknowledgement frees the cell; it should come soon when few are left.
WorkRequest EagerSource::write(uint8_t cell, uint32_t connection) const {
  const Train& train = trains_[cell];
  const uint32_t alike = cell < EagerCells::kTinyCells ? kTinyMask : kLargeMask;
  return {
      .local = train.data,
      .remote = train.remote.address,
      .length = train.bytes,
      .local_key = key_,
      .remote_key = train.remote.key,
      .immediate =
          Immediate{.connection = connection, .slot = train.slot, .writes = train.writes}.pack(),
      .opcode = Opcode::kWriteWithImm,
      .awaited = 2 * std::popcount(copies_ & alike) >= std::popcount(alike),
      .host = true};
}

bool EagerSource::on_freed(uint64_t count) {
  if (count > sent_) return false;
  if (count <= freed_) return true;
  freed_ = count;
  for (uint32_t bits = away_; bits != 0; bits &= bits - 1) {
    const auto cell = static_cast<uint32_t>(std::countr_zero(bits));
    if (trains_[cell].end <= freed_) away_ &= ~(1U << cell);
  }
  return true;
}

void EagerInbox::enable(const EagerCells& cells, const uint8_t* memory) {
  cells_ = cells;
  memory_ = memory;
}

bool EagerInbox::on_write(uint32_t cell, Bytes bytes, Bytes* payload) {
  *payload = 0;
  if (cell >= EagerCells::kCells || held_[cell] > 0) return false;
  if (cells_.bytes() == 0 || bytes == 0 || bytes > cells_.room(cell)) return false;
  const uint8_t* const train = memory_ + cells_.offset(cell);
  for (Bytes begin = 0; begin < bytes;) {
    if (bytes - begin < sizeof(EagerHeader)) return false;
    EagerHeader header;
    std::memcpy(&header, train + begin, sizeof header);
    if (header.size > bytes - begin - sizeof header) return false;
    const uint32_t ahead = header.number - static_cast<uint32_t>(freed_);
    const size_t at = place(freed_ + ahead);
    if (ahead >= EagerCells::kMessages || arrived_[at]) return false;
    arrived_.set(at);
    if (at >= messages_.size()) messages_.resize(at + 1);
    // Member by member: one load over several recent stores would stall (no store forwarding).
    Message& message = messages_[at];
    message.header = header;
    message.data = train + begin + sizeof header;
    message.cell = cell;
    message.taken = false;
    ++held_[cell];
    *payload += header.size;
    begin = EagerCells::next(begin + sizeof header + header.size);
  }
  ++occupied_;
  return true;
}

EagerInbox::Message* EagerInbox::at(uint32_t index) {
  const size_t at = place(freed_ + index);
  return index < EagerCells::kMessages && arrived_[at] ? &messages_[at] : nullptr;
}

void EagerInbox::free_taken() {
  for (Message* oldest = at(0); oldest != nullptr && oldest->taken; oldest = at(0)) {
    if (--held_[oldest->cell] == 0) {
      ++(oldest->cell < EagerCells::kTinyCells ? unreported_tiny_ : unreported_large_);
      --occupied_;
    }
    arrived_.reset(place(freed_++));
  }
}

}  // namespace pacecar
