// Puts and records to one rank, in the order in which they are given: what there is no room for yet
// waits here. A put is done when the peer has it where it is for, a record when it is on its way.
//
// Memory that a NIC does not reach is put piece by piece. Where it is the peer's, a piece goes into
// the landing that he has told of, and a record behind it has him copy it on; a further one says
// that he has, and that its space is free.
//
// Bounds: kMaxWaiting parts; the caller asks room() first. Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "gdr/ring_space.h"
#include "transport/api/pacecar.hpp"
#include "transport/rma/landing.h"
#include "transport/rma/operation.h"
#include "transport/rma/record.h"
#include "transport/rma/windows.h"

namespace pacecar::rma {

struct Put {
  const uint8_t* data = nullptr;
  size_t size = 0;
  const Memory* memory = nullptr;
  Place to;  // the peer's
  uint64_t offset = 0;
};

class Outbox {
 public:
  static constexpr size_t kMaxWaiting = 1 << 16;

  // `places`: kRecords of them, in `memory`; both outlive the outbox.
  Outbox(std::unique_ptr<SendConnection> connection, Record* places, const Memory* memory)
      : connection_(std::move(connection)), places_(places), memory_(memory) {}

  bool room() const { return waiting_.size() + started_.size() + 2 <= kMaxWaiting; }
  // Each is a part of an operation, if of any, which stays where it is until it is done.
  void add(const Put& put, Operation* operation);
  void add(const Record& record, Operation* operation);
  // A part that is done when all before it is.
  void add_mark(Operation& operation);
  // Starts what there is room for, and tells what is done. Errors: kPeer and what a put may say.
  Result<void> advance();
  // What has started leaves at once, and not with the next poll.
  void hurry() { connection_->hurry(); }
  // All operations that are not done fail.
  void fail(const Error& why);
  // The peer says nothing any more: what has not started fails, and what he would copy on.
  void forsake(const Error& why);

  // The peer has told of his landing. False: it is none.
  bool set_landing(const Window& window);
  // He has copied so many more pieces on. False: there were not so many.
  bool delivered(uint64_t pieces);
  // We have copied one of his on: he is told before anything that waits, which may wait for him.
  void owe() { ++owed_; }

  bool idle() const {
    return waiting_.empty() && started_.empty() && pieces_.empty() && owed_ == 0 && !behind_;
  }
  // Parts that were ever added, and how many of the first of them are done, but for what the peer
  // has yet to copy on.
  uint64_t added() const { return added_; }
  uint64_t done() const { return done_; }
  std::string peer() const { return connection_->peer(); }

 private:
  enum class Kind : uint8_t { kPut, kRecord, kMark };
  struct Part {
    Kind kind = Kind::kPut;
    Put put;  // what is left of it
    Record record;
    Operation* operation = nullptr;
  };
  struct Started {
    Request* request = nullptr;  // none: a mark
    bool is_record = false;
    bool last = true;  // of its part
    Operation* operation = nullptr;
  };
  // In the peer's landing; or a mark behind such.
  struct Piece {
    std::optional<size_t> space;
    Operation* operation = nullptr;  // of the last of a part
  };

  void add(Part part);
  // Each false: no room.
  Result<bool> start();
  Result<bool> start_put(Part& part);
  Result<bool> start_piece(const Put& put, size_t size, Operation* operation);
  Result<bool> send(const Record& record, Started started);
  Result<bool> write(const Put& put, size_t size, const Window& window, uint64_t offset,
                     Started started);
  Result<void> finish();
  void start_mark(Operation* operation);
  void drop_marks();
  static void report_done(Operation* operation);

  std::unique_ptr<SendConnection> connection_;
  Record* places_;
  const Memory* memory_;
  std::deque<Part> waiting_;
  std::deque<Started> started_;  // not done
  uint64_t added_ = 0;
  uint64_t done_ = 0;
  uint64_t records_sent_ = 0;
  uint64_t records_done_ = 0;
  int puts_in_a_row_ = 0;

  Window landing_;  // the peer's; of no length while he has not told of it
  RingSpace space_{Landing::kBytes};
  std::optional<size_t> next_space_;  // taken for the first that waits
  std::deque<Piece> pieces_;          // not copied on
  std::optional<Record> behind_;      // the newest of them, and not sent yet
  uint64_t owed_ = 0;
};

}  // namespace pacecar::rma
