// The memory layout of control writes: small RDMA writes into tables that the other side polls.
// They cause no completion at the target, and the newest write wins. A table's content comes from
// the peer and is checked before use. No entry crosses a cache line; one longer than 8 bytes shows
// by sequence numbers or a checksum that it is whole, in whatever order its bytes appear.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "transport/base/polled_memory.h"

namespace pacecar {

// A NIC's writes become visible in units of at least this many aligned bytes: in ascending order of
// addresses, or in any order under relaxed ordering (a setting of the machine or its firmware).
constexpr size_t kVisibleUnit = 32;

// One posted receive buffer, written by the receiver into the sender's ring of slots: permission to
// send, and how fast. The sequence number is the last field of each half and so becomes visible
// last: a reader that finds it in both halves has a whole slot.
struct alignas(64) CtsSlot {
  uint64_t address = 0;
  uint64_t size = 0;
  uint32_t key = 0;
  int32_t tag = 0;
  uint64_t first_sequence = 0;  // the same as `sequence`
  uint16_t group_size = 0;      // buffers of the same receive request
  uint16_t group_index = 0;     // of this one
  uint32_t reserved = 0;
  uint64_t eager_freed = 0;  // eager messages taken by the receiver, ever
  uint64_t grant = 0;        // the grant word in force (cc/grant_word.h)
  uint64_t sequence = 0;     // 1 + how many slots the receiver has posted before this one

  bool holds(uint64_t wanted) const {
    return load_polled(sequence) == wanted && load_polled(first_sequence) == wanted;
  }
};
static_assert(sizeof(CtsSlot) == 2 * kVisibleUnit && std::is_trivially_copyable_v<CtsSlot>);
static_assert(offsetof(CtsSlot, first_sequence) == kVisibleUnit - sizeof(uint64_t));
static_assert(offsetof(CtsSlot, sequence) == sizeof(CtsSlot) - sizeof(uint64_t));

constexpr uint32_t kCtsSlots = 256;  // ring size: 32 receives of up to 8 buffers

// The immediate value of a data write: which receive buffer it fills. The last write of a message
// also has the number of the message's writes, which includes the puts before it.
struct Immediate {
  static constexpr uint32_t kMaxConnections = 1U << 10;  // of a flow
  static constexpr uint32_t kMaxWrites = (1U << 14) - 5;
  static constexpr uint32_t kPut = (1U << 14) - 4;        // instead of a count: it belongs to the
                                                          // message, and went to a window
  static constexpr uint32_t kAbandoned = (1U << 14) - 3;  // instead of a count: nothing follows
  static constexpr uint32_t kEager = (1U << 14) - 2;      // instead of a count: a whole message for
                                                          // which no buffer was known (eager.h)
  static constexpr uint32_t kTooLong = (1U << 14) - 1;    // instead of a count: nothing was sent,
                                                          // the message is larger than the buffer
  uint32_t connection = 0;                                // 10 bits: its number in the flow
  uint32_t slot = 0;                                      // 8 bits: sequence modulo kCtsSlots; or
                                                          // of an eager message: its cell
  uint32_t writes = 0;                                    // 14 bits; 0: not the last one

  uint32_t pack() const { return connection << 22 | slot << 14 | writes; }
  static Immediate unpack(uint32_t value) {
    return {value >> 22, value >> 14 & 0xFF, value & 0x3FFF};
  }
};
static_assert(kCtsSlots == 256, "a slot number has 8 bits");

// The close word, written at the end of a connection, has a count: from the receiver, of the slots
// that were filled and completed; from the sender, of the writes that have been acknowledged, whose
// completions the receiver may not have polled yet.
struct CloseWord {
  static constexpr uint64_t kClosed = uint64_t{1} << 63;
  static uint64_t pack(uint64_t count) { return kClosed | count; }
  static bool closed(uint64_t word) { return (word & kClosed) != 0; }
  static uint64_t count(uint64_t word) { return word & ~kClosed; }
};

// Ends of a bonded connection exchange notes over a lane when another is lost; the layer above
// interprets them. A note may be overwritten while read: it counts only if its checksum is right.
struct LaneNote {
  uint64_t checksum = 0;  // of the rest: seal()
  uint32_t epoch = 0;
  uint8_t kind = 0;
  uint8_t lanes = 0;  // bit per lane
  uint16_t reserved = 0;
  uint64_t next = 0;      // slot; from the sender: writes that have arrived on this lane
  uint64_t done[4] = {};  // bit per slot, by slot number modulo kCtsSlots
  uint64_t number = 0;    // counts the notes of this end; 0: none
};
static_assert(sizeof(LaneNote) == 64 && std::is_trivially_copyable_v<LaneNote>);

// A note as it lies in memory that the peer writes.
using NoteWords = std::array<uint64_t, sizeof(LaneNote) / sizeof(uint64_t)>;

// Over all words but the first: as FNV-1a, but by 8-byte words and from 0; 0 for a note of zeros.
constexpr uint64_t note_checksum(const NoteWords& words) {
  uint64_t sum = 0;
  for (size_t i = 1; i < words.size(); ++i) sum = (sum ^ words[i]) * 0x100000001B3;
  return sum;
}

// The note as it is written.
constexpr NoteWords seal(const LaneNote& note) {
  auto words = std::bit_cast<NoteWords>(note);
  words.front() = note_checksum(words);
  return words;
}

// The newest note; nullopt while it is being written.
inline std::optional<LaneNote> read_note(const NoteWords& place) {
  const NoteWords words = load_polled_record(place);
  if (words.front() != note_checksum(words)) return std::nullopt;
  return std::bit_cast<LaneNote>(words);
}

// The sending end's table: memory that the receiving end writes, and the sources of our own writes.
struct SendTable {
  CtsSlot slots[kCtsSlots];
  alignas(64) NoteWords peer_note{};
  NoteWords own_note{};  // source of our own
  uint64_t peer_close = 0;
  uint64_t own_close = 0;   // source of our own close word
  uint64_t own_wanted = 0;  // source of ReceiveTable::peer_wanted
};

// The receiving end's table: the sources of our own writes, and memory that the sending end writes.
struct ReceiveTable {
  CtsSlot slots[kCtsSlots];
  alignas(64) NoteWords peer_note{};
  NoteWords own_note{};
  uint64_t peer_close = 0;
  uint64_t own_close = 0;
  uint64_t peer_wanted = 0;  // the sender waits until this many slots have been advertised, ever
};

}  // namespace pacecar
