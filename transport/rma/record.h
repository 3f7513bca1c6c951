// The messages between two ranks: all of one size, in native layout, as both ends have the same
// byte order (control words require it, too). The fields of a peer's record are checked before use.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>

#include "transport/api/pacecar.hpp"
#include "transport/base/return_if_error.h"

namespace pacecar::rma {

enum class RecordKind : uint32_t {
  kHello = 1,  // the first: names the sending rank
  kWindow,     // the next window that the sender shares
  kNothing,    // ends a row of puts, which have a limit (kMaxPutsInARow)
  kSignal,     // add to a word: the puts before it are in place
  kGet,        // put those bytes into a window of the sender, then reply kGot
  kGot,        // the get's bytes have been put
  kBye,        // the sender leaves: its later silence is not a failure
  kLanding,    // advertises the landing for GPU memory that the sender's NIC does not reach
  kDeliver,    // copy these bytes of the landing to their destination
  kDelivered,  // that many more pieces are copied, and their space in the landing is free
};

struct Record {
  RecordKind kind = RecordKind::kNothing;
  uint32_t window = 0;         // of the receiver; kWindow: of the sender
  uint64_t offset = 0;         // in the window, in bytes; kWindow, kLanding: the address
  uint64_t length = 0;         // in bytes
  uint64_t value = 0;          // kSignal: to add; kGet, kGot: the get's number; kHello: the rank;
                               // kDelivered: how many pieces
  uint32_t answer_window = 0;  // kGet: the sender's window; kWindow, kLanding: the key
  uint32_t staged = 0;         // kWindow: 1 if the sender's NIC does not reach it
  uint64_t answer_offset = 0;  // kGet: in the sender's window; kDeliver: in the landing
};
static_assert(sizeof(Record) == 48 && std::is_trivially_copyable_v<Record>);

// The largest number of outstanding records to a rank: the receives of a connection.
inline constexpr uint32_t kRecords = 32;

// The records of one rank, in the order of sending. A record arrives when the puts before it are in
// place. Thread rule: one thread at a time.
class Inbox {
 public:
  // `places`: kRecords places in `memory`; both outlive the inbox.
  Inbox(std::unique_ptr<ReceiveConnection> connection, Record* places, const Memory* memory)
      : connection_(std::move(connection)), places_(places), memory_(memory) {}

  Result<void> open() {
    connection_->set_preposted();
    for (uint32_t place = 0; place < kRecords; ++place) {
      RETURN_IF_ERROR(post(place));
    }
    return {};
  }
  // The next record; nullopt: none yet. Errors: kPeer (also: a message of another size).
  Result<std::optional<Record>> next() {
    Request* const request = requests_[oldest_];
    if (request == nullptr || !settled(*request)) return std::nullopt;
    requests_[oldest_] = nullptr;
    ASSIGN_OR_RETURN(const TestResult result, connection_->test(request));
    if (result.sizes[0] != sizeof(Record)) {
      return fail(ErrorCode::kPeer, connection_->peer() +
                                        " sent an invalid record: run the same "
                                        "version of Pacecar on both sides");
    }
    const Record record = places_[oldest_];
    RETURN_IF_ERROR(post(oldest_));
    oldest_ = (oldest_ + 1) % kRecords;
    return record;
  }

 private:
  Result<void> post(uint32_t place) {
    const ReceiveBuffer buffer{
        .data = &places_[place], .size = sizeof(Record), .tag = 0, .memory = memory_};
    ASSIGN_OR_RETURN(auto started, connection_->irecv({&buffer, 1}));
    if (started == nullptr) return fail(ErrorCode::kInternal, "a connection has too few receives");
    requests_[place] = started;
    return {};
  }

  std::unique_ptr<ReceiveConnection> connection_;
  Record* places_;
  const Memory* memory_;
  std::array<Request*, kRecords> requests_{};
  uint32_t oldest_ = 0;
};

}  // namespace pacecar::rma
