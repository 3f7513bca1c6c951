// Eager messages: small ones that leave before the receiver's buffer is known.
//
// The sender copies such a message into a cell of its own memory, which gives the application its
// memory back at once, and writes it into a cell of the receiver's, a header in front. The receiver
// copies it into the buffer that it would have gone to anyway: the first of its tag that no earlier
// message takes. The slots that tell of buffers give the cells back.
//
// Pure; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "transport/base/units.h"
#include "transport/message/handshake.h"

namespace pacecar {

constexpr uint32_t kEagerCells = 16;
// Up to here a copy costs next to nothing. Of larger messages there are few in cells at a time: in
// a stream of them their copies would cost more than waiting for buffers does.
constexpr Bytes kTinyBytes = 4096;

struct EagerHeader {
  uint64_t next_slot = 0;  // below it no slot is this message's
  uint32_t size = 0;
  int32_t tag = 0;
};
static_assert(sizeof(EagerHeader) == 16);

// Of one cell, for messages of up to `message` bytes; of all cells of one end of a connection.
constexpr Bytes eager_cell_bytes(Bytes message) {
  return (sizeof(EagerHeader) + message + 63) / 64 * 64;
}
constexpr Bytes eager_bytes(Bytes message) {
  return message == 0 ? 0 : kEagerCells * eager_cell_bytes(message);
}

// The sender's cells, each in use until its write is done, and what it knows of the receiver's.
class EagerSource {
 public:
  static constexpr uint8_t kNone = 0xFF;

  // Takes nothing until then. `cells`: eager_bytes(message) of registered memory.
  void enable(Bytes message, uint8_t* cells, uint32_t key, const RemotePlace& remote);

  bool tiny(Bytes size) const { return enabled_ && size <= std::min(message_, kTinyBytes); }
  // A copy of such a message may be made, now or once others are given back.
  bool takes(Bytes size) const { return enabled_ && size <= message_; }
  bool has_room(Bytes size) const {
    return takes(size) && free_ != 0 && (tiny(size) || copied_ + size <= 2 * message_);
  }
  // The cell that holds the message, for which there must be room.
  uint8_t copy(const uint8_t* data, Bytes size);
  void give_back(uint8_t cell, Bytes size);
  uint8_t* message(uint8_t cell) const { return header(cell) + sizeof(EagerHeader); }
  uint8_t* header(uint8_t cell) const { return cells_ + cell * eager_cell_bytes(message_); }
  uint32_t key() const { return key_; }

  bool receiver_has_room() const { return sent_ - freed_ < kEagerCells; }
  // The number of the next eager message.
  uint64_t send() { return sent_++; }
  // Where that goes.
  uint64_t place(uint64_t number) const {
    return remote_.address + number % kEagerCells * eager_cell_bytes(message_);
  }
  uint32_t remote_key() const { return remote_.key; }
  // The receiver says how many it has taken, ever. False for nonsense.
  bool on_freed(uint64_t count);

 private:
  bool enabled_ = false;
  Bytes message_ = 0;
  uint8_t* cells_ = nullptr;
  uint32_t key_ = 0;
  RemotePlace remote_;
  uint32_t free_ = (1U << kEagerCells) - 1;  // bit per cell of ours
  Bytes copied_ = 0;                         // of messages that are not tiny
  uint64_t sent_ = 0;
  uint64_t freed_ = 0;
};

// The receiver's cells: what has arrived, in the order of its sending, until it is taken.
class EagerInbox {
 public:
  struct Message {
    EagerHeader header;
    const uint8_t* data = nullptr;
    bool arrived = false;
    bool taken = false;
  };

  void enable(Bytes message, const uint8_t* cells);

  bool tiny(Bytes size) const {
    return cells_ != nullptr && size <= std::min(message_, kTinyBytes);
  }
  // A write of `bytes` into the cell of the message whose number ends with these 8 bits. False for
  // nonsense.
  bool on_write(uint32_t number, Bytes bytes);
  // The `index`th message that is not yet freed; nullptr: neither it nor those behind it may be
  // taken, because it has not arrived.
  Message* at(uint32_t index);
  void free_taken();
  bool empty() const { return arrived_ == freed_; }
  uint64_t freed() const { return freed_; }
  uint64_t arrived() const { return arrived_; }

 private:
  Bytes message_ = 0;
  const uint8_t* cells_ = nullptr;
  std::array<Message, kEagerCells> messages_{};  // by number modulo kEagerCells
  uint64_t freed_ = 0;                           // all below this number
  uint64_t arrived_ = 0;                         // how many, in any order
};

}  // namespace pacecar
