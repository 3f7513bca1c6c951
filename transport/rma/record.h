// The messages of two ranks after their puts: all of one size, in native layout, as both ends have
// the same byte order (control words require it, too). A record comes from the peer and is checked
// before use.
#pragma once

#include <cstdint>
#include <type_traits>

namespace pacecar::rma {

enum class RecordKind : uint32_t {
  kHello = 1,  // the first: names the sending rank
  kWindow,     // the next window that the sender shares
  kNothing,    // ends a row of puts
  kSignal,     // add to a word: the puts before it are in place
  kGet,        // put those bytes into a window of the sender, then reply kGot
  kGot,        // the get's bytes have been put
  kBye,        // the sender leaves: later silence is no failure
  kLanding,    // advertises the landing for GPU memory that the sender's NIC does not reach
  kDeliver,    // copy these bytes of the landing to their destination
  kDelivered,  // so many more are copied, and their space in the landing is free
};

struct Record {
  RecordKind kind = RecordKind::kNothing;
  uint32_t window = 0;         // of the receiver; kWindow: of the sender, by its number
  uint64_t offset = 0;         // in it, in bytes; kWindow, kLanding: its address
  uint64_t length = 0;         // kGet, kDeliver: bytes; kWindow, kLanding: its length
  uint64_t value = 0;          // kSignal: what to add; kGet, kGot: which get; kHello: the rank
  uint32_t answer_window = 0;  // kGet: the sender's; kWindow, kLanding: its key
  uint32_t staged = 0;         // kWindow: 1 if the sender's NIC does not reach it
  uint64_t answer_offset = 0;  // kGet; kDeliver: in the landing
};
static_assert(sizeof(Record) == 48 && std::is_trivially_copyable_v<Record>);

// The most outstanding records to a rank: as many as a connection has receives.
inline constexpr uint32_t kRecords = 32;

}  // namespace pacecar::rma
