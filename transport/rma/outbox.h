// Puts and records to one rank, in order; they wait here until the connection takes them. A put is
// done when its bytes are at their destination, a record when it has been posted.
// Memory that a NIC does not reach is put in pieces. If it is the peer's memory, a piece goes into
// the landing that the peer has advertised, and the next record requests the copy to its
// destination. The peer reports by a record that the copy is done and the space is free.
// Bounds: kMaxWaiting parts; check room() first. Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "gdr/ring_space.h"
#include "transport/api/pacecar.hpp"
#include "transport/rma/landing.h"
#include "transport/rma/record.h"
#include "transport/rma/windows.h"

namespace pacecar::rma {

struct Put {
  const uint8_t* data = nullptr;
  size_t size = 0;
  const Memory* memory = nullptr;
  Place to;  // of the peer
  uint64_t offset = 0;
};

class Outbox {
 public:
  static constexpr size_t kMaxWaiting = 1 << 16;

  // `places`: kRecords places in `memory`; both outlive the outbox.
  Outbox(std::unique_ptr<SendConnection> connection, Record* places, const Memory* memory)
      : connection_(std::move(connection)), places_(places), memory_(memory) {}

  bool room() const { return waiting_.size() + started_.size() + 2 <= kMaxWaiting; }
  // Each adds a part to the operation, if one is given; it must not move until it is done.
  void add(const Put& put, Operation* operation);
  void add(const Record& record, Operation* operation);
  // Adds a part that is done when all parts before it are done.
  void add_mark(Operation& operation);
  // Starts the parts that the connection takes, completes finished ones. Errors: kPeer, as of puts.
  Result<void> advance();
  // Sends started parts at once, not with the next poll.
  void send_now() { connection_->send_now(); }
  void fail(const Error& why);
  // Whether a put from `memory` has not been started, or not wholly.
  bool waits_for(const Memory* memory) const;
  // The peer has left: parts that have not been started fail, and pieces that it has not copied.
  void abandon(const Error& why);

  bool set_landing(const Window& window);  // The peer has advertised its landing. False: invalid.
  // The peer has copied that many more pieces. False: there were fewer.
  bool delivered(uint64_t pieces);
  // This rank has copied one of the peer's pieces. The report is sent before all waiting parts, as
  // these may wait for the peer.
  void report_copied();

  bool idle() const { return waiting_.empty() && started_.empty() && pieces_.empty(); }
  // The number of parts added so far, and how many parts are done, without the peer's copies.
  uint64_t added() const { return added_; }
  uint64_t done() const { return done_; }
  std::string peer() const { return connection_->peer(); }

 private:
  enum class Kind : uint8_t { kPut, kRecord, kMark };
  struct Part {
    Kind kind = Kind::kPut;
    Put put;  // its remaining bytes
    Record record;
    Operation* operation = nullptr;
    bool counts = true;  // in added() and done()
  };
  struct Started {
    Request* request = nullptr;  // null: a mark
    bool is_record = false;
    bool last = true;  // it ends its part
    Operation* operation = nullptr;
  };
  // A piece in the peer's landing, or a mark after one.
  struct Piece {
    std::optional<size_t> space;     // nullopt: a mark
    Operation* operation = nullptr;  // of a part's last piece
  };

  void add(Part part);
  // Adds a record that is sent before all waiting parts, and belongs to none.
  void add_first(const Record& record);
  // Each returns false if the connection, or the landing, has no room.
  Result<bool> start();
  Result<bool> start_put(Part& part);
  // Sets the record that requests the copy.
  Result<bool> start_piece(const Put& put, size_t size, Operation* operation, Record& deliver);
  Result<bool> send(const Record& record, Started started);
  Result<bool> write(const Put& put, size_t size, const Window& window, uint64_t offset,
                     Started started);
  Result<void> finish();

  std::unique_ptr<SendConnection> connection_;
  Record* places_;
  const Memory* memory_;
  std::deque<Part> waiting_;
  std::deque<Started> started_;  // and not done
  uint64_t added_ = 0;
  uint64_t done_ = 0;
  uint64_t records_sent_ = 0;
  uint64_t records_done_ = 0;
  int puts_in_a_row_ = 0;

  Window landing_;  // of the peer; empty until advertised
  RingSpace space_{Landing::kBytes};
  std::optional<size_t> next_space_;  // reserved for the next piece
  std::deque<Piece> pieces_;          // not copied by the peer yet
};

}  // namespace pacecar::rma
