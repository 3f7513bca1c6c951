// What two ranks say to each other behind their puts: messages of one size. Written as they lie in
// memory: both ends are of one byte order, as the control words of messages require. What is read
// was written by the peer: it is checked before it is used.
#pragma once

#include <cstdint>
#include <type_traits>

namespace pacecar::rma {

enum class RecordKind : uint32_t {
  kHello = 1,  // the first: who speaks
  kWindow,     // the next window that the sender shares
  kNothing,    // ends a row of puts
  kSignal,     // add to a word, now that the puts before are in place
  kGet,        // put what lies there into a window of mine, and say so
  kGot,        // that is done
  kBye,        // the sender leaves: his silence from now on is no failure
  kLanding,    // where to put what is for my GPUs' memory that my NIC does not reach
  kDeliver,    // copy what lies in your landing to where it is for
  kDelivered,  // so many more of those are where they are for, and their landing is free
};

struct Record {
  RecordKind kind = RecordKind::kNothing;
  uint32_t window = 0;         // one of the receiver's; kWindow: of the sender's, by his number
  uint64_t offset = 0;         // in it, in bytes; kWindow, kLanding: its address
  uint64_t length = 0;         // kGet, kDeliver: bytes; kWindow, kLanding: its length
  uint64_t value = 0;          // kSignal: what to add; kGet, kGot: which get; kHello: the rank
  uint32_t answer_window = 0;  // kGet: the sender's; kWindow, kLanding: its key
  uint32_t staged = 0;         // kWindow: 1 if the sender's NIC does not reach it
  uint64_t answer_offset = 0;  // kGet; kDeliver: in the landing
};
static_assert(sizeof(Record) == 48 && std::is_trivially_copyable_v<Record>);

// Records of one rank that another has not taken: as many as one connection has receives.
inline constexpr uint32_t kRecords = 32;

}  // namespace pacecar::rma
