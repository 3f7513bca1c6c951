// Eager messages: small ones that leave before the receiver's buffer is known.
// The sender copies such a message into a cell of its own memory, so the application's buffer is
// free at once, and writes it, behind a header, into the receiver's cell of the same number.
// Messages that are sent before that write leaves share it: a train. The receiver copies each
// message into the buffer that it would have gone to anyway: the first of its tag that no earlier
// message takes. CTS slots return the cells (CtsSlot::eager_freed). Pure; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cstdint>
#include <vector>

#include "transport/base/units.h"
#include "transport/message/handshake.h"
#include "transport/nic/nic.h"

namespace pacecar {

struct EagerHeader {
  uint64_t next_slot = 0;  // the message's slot is this one or a later one
  uint32_t number = 0;     // of the eager message, modulo 2^32
  uint32_t size = 0;
  int32_t tag = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(EagerHeader) == 24);

// The cells of one end of a connection, for messages of up to `message` bytes; 0: there are none.
// Up to kTiny bytes a copy costs next to nothing. Larger messages have fewer cells: in a stream of
// them copying costs more than waiting for buffers.
class EagerCells {
 public:
  static constexpr Bytes kTiny = 8192;
  static constexpr uint32_t kTinyCells = 16;
  static constexpr uint32_t kLargeCells = 8;
  static constexpr uint32_t kCells = kTinyCells + kLargeCells;
  // Most messages that are sent and not yet known to be taken by the receiver.
  static constexpr uint32_t kMessages = 128;

  explicit constexpr EagerCells(Bytes message = 0) : message_(message) {}

  constexpr bool takes(Bytes size) const { return message_ > 0 && size <= message_; }
  constexpr bool tiny(Bytes size) const { return takes(size) && size <= kTiny; }
  // The largest message that fits.
  constexpr Bytes capacity(uint32_t cell) const {
    return cell < kTinyCells ? std::min(message_, kTiny) : message_;
  }
  // Bytes for messages, headers and gaps included.
  constexpr Bytes room(uint32_t cell) const { return sizeof(EagerHeader) + capacity(cell); }
  constexpr Bytes offset(uint32_t cell) const {
    const uint32_t large = std::max(cell, kTinyCells) - kTinyCells;
    return std::min(cell, kTinyCells) * stride(0) + large * stride(kTinyCells);
  }
  constexpr Bytes bytes() const { return message_ == 0 ? 0 : offset(kCells); }
  // The offset in its cell at which the next message begins after one that ends at `end`.
  static constexpr Bytes next(Bytes end) { return (end + 7) / 8 * 8; }

 private:
  constexpr Bytes stride(uint32_t cell) const { return (room(cell) + 63) / 64 * 64; }
  Bytes message_;
};

// The sender's cells. A cell is in use until its write is acknowledged and, if the write went to
// the receiver's cell, until the receiver has taken the messages.
class EagerSource {
 public:
  static constexpr uint8_t kNone = 0xFF;

  // Until this call no message is taken. `memory`: cells.bytes(), registered.
  void enable(const EagerCells& cells, uint8_t* memory, uint32_t key, const RemoteAddress& remote);

  bool tiny(Bytes size) const { return cells_.tiny(size); }
  bool has_room(Bytes size) const { return free_cells(size) != 0; }

  // A message for a buffer that is known, alone in its cell, for which there must be room.
  uint8_t copy(const uint8_t* data, Bytes size, const RemoteAddress& buffer, uint32_t slot);
  // A message can go into one of the receiver's cells.
  bool takes(Bytes size) const { return numbers_left() && (joins_train(size) || has_room(size)); }
  // A message could go into a cell if no write were outstanding.
  bool will_take(Bytes size) const { return numbers_left() && (fitting(size) & ~away_) != 0; }
  // The newest train has not left and has room for the message.
  bool joins_train(Bytes size) const {
    return open_ != kNone && EagerCells::next(trains_[open_].bytes) + sizeof(EagerHeader) + size <=
                                 cells_.room(open_);
  }
  // Copies a message for which takes() is true; returns its cell, that of its train, if any.
  uint8_t send(const uint8_t* data, Bytes size, uint64_t next_slot, int32_t tag);

  // The write of this cell, without its id, to the receiver's connection of this number.
  WorkRequest write(uint8_t cell, uint32_t connection) const;
  // The write has been posted; returns its payload.
  Bytes on_left(uint8_t cell) {
    if (open_ == cell) open_ = kNone;
    return trains_[cell].payload;
  }
  // The write is acknowledged; returns the number of its messages.
  uint32_t on_write_done(uint8_t cell) {
    copies_ &= ~(1U << cell);
    return trains_[cell].messages;
  }
  // Writes that are not acknowledged.
  uint32_t writes() const { return static_cast<uint32_t>(std::popcount(copies_)); }
  // The receiver has reported how many messages it has taken, ever. False for an impossible count.
  bool on_freed(uint64_t count);

 private:
  struct Train {
    uint64_t end = 0;  // the number after that of its last message
    uint8_t* data = nullptr;
    Bytes bytes = 0;  // headers and gaps included
    Bytes payload = 0;
    uint32_t messages = 0;
    RemoteAddress remote;  // the receiver's cell, or the buffer of a message alone
    uint32_t slot = 0;     // Immediate::slot
    uint32_t writes = 0;   // Immediate::writes
  };
  static constexpr uint32_t kTinyMask = (1U << EagerCells::kTinyCells) - 1;
  static constexpr uint32_t kLargeMask = ((1U << EagerCells::kCells) - 1) & ~kTinyMask;

  uint32_t fitting(Bytes size) const {
    return !cells_.takes(size) ? 0 : cells_.tiny(size) ? kTinyMask : kLargeMask;
  }
  uint32_t free_cells(Bytes size) const { return fitting(size) & ~(copies_ | away_); }
  bool numbers_left() const { return sent_ - freed_ < EagerCells::kMessages; }
  uint8_t take_cell(Bytes size);

  EagerCells cells_;
  uint8_t* memory_ = nullptr;
  uint32_t key_ = 0;
  RemoteAddress remote_;
  uint32_t copies_ = 0;  // bit per cell: its write is not done
  uint32_t away_ = 0;    // bit per cell: the receiver has not taken its messages
  std::array<Train, EagerCells::kCells> trains_{};
  uint64_t sent_ = 0;
  uint64_t freed_ = 0;
  uint8_t open_ = kNone;  // the cell of the newest train, until it leaves
};

// The receiver's cells: the messages that have arrived, in the order of sending, until taken.
class EagerInbox {
 public:
  struct Message {
    EagerHeader header;
    const uint8_t* data = nullptr;
    uint32_t cell = 0;
    bool taken = false;
  };

  void enable(const EagerCells& cells, const uint8_t* memory);

  bool tiny(Bytes size) const { return cells_.tiny(size); }
  // A write of `bytes` into this cell; `payload`: bytes of its messages. False: a protocol error.
  bool on_write(uint32_t cell, Bytes bytes, Bytes* payload);
  // The `index`th message not yet freed. nullptr: not arrived, so no later one may be taken either.
  Message* at(uint32_t index);
  void free_taken();
  bool empty() const { return occupied_ == 0; }
  uint64_t freed() const { return freed_; }
  // A slot has reported to the sender all cells freed until now.
  void on_reported() {
    unreported_tiny_ = unreported_large_ = 0;
    reported_ = freed_;
  }
  bool many_unreported() const {
    return unreported_tiny_ >= EagerCells::kTinyCells / 2 ||
           unreported_large_ >= EagerCells::kLargeCells - 1 ||
           freed_ - reported_ >= EagerCells::kMessages / 2;
  }

 private:
  static size_t place(uint64_t number) { return number % EagerCells::kMessages; }

  EagerCells cells_;
  const uint8_t* memory_ = nullptr;
  std::vector<Message> messages_;                    // by number; grows to the most that have come
  std::bitset<EagerCells::kMessages> arrived_;       // which of `messages_` have arrived
  std::array<uint32_t, EagerCells::kCells> held_{};  // messages in each cell
  uint32_t occupied_ = 0;                            // cells that hold some
  uint64_t freed_ = 0;                               // all below this number
  uint64_t reported_ = 0;
  uint32_t unreported_tiny_ = 0;
  uint32_t unreported_large_ = 0;
};

}  // namespace pacecar
