// Puts and records to one rank, in the order in which they are given: what there is no room for yet
// waits here. A put is done when the peer has it, a record when it is on its way.
//
// Bounds: kMaxWaiting parts; the caller asks room() first. Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "transport/api/pacecar.hpp"
#include "transport/rma/operation.h"
#include "transport/rma/record.h"

namespace pacecar::rma {

struct Put {
  const void* data = nullptr;
  size_t size = 0;
  const Memory* memory = nullptr;
  Window window;  // the peer's
  uint64_t offset = 0;
};

class Outbox {
 public:
  static constexpr size_t kMaxWaiting = 1 << 16;

  // `places`: kRecords of them, in `memory`; both outlive the outbox.
  Outbox(std::unique_ptr<SendConnection> connection, Record* places, const Memory* memory)
      : connection_(std::move(connection)), places_(places), memory_(memory) {}

  bool room() const { return parts_.size() + 2 <= kMaxWaiting; }
  // Each is a part of an operation, if of any, which stays where it is until it is done.
  void add(const Put& put, Operation* operation);
  void add(const Record& record, Operation* operation);
  // Starts what there is room for, and tells what is done. Errors: kPeer and what a put may say.
  Result<void> advance();
  // What has started leaves at once, and not with the next poll.
  void hurry() { connection_->hurry(); }
  // All operations that are not done fail.
  void fail(const Error& why);

  bool idle() const { return parts_.empty(); }
  // Parts that were ever added, and how many of the first of them are done.
  uint64_t added() const { return added_; }
  uint64_t done() const { return added_ - parts_.size(); }
  std::string peer() const { return connection_->peer(); }

 private:
  struct Part {
    Put put;
    Record record;
    bool is_record = false;
    Operation* operation = nullptr;
    Request* request = nullptr;  // once it has started
  };

  void add(Part part);
  // False: no room.
  Result<bool> start(Part& part);
  Result<Request*> send(const Record& record);
  Result<void> finish();
  static void tell_done(Part& part);

  std::unique_ptr<SendConnection> connection_;
  Record* places_;
  const Memory* memory_;
  std::deque<Part> parts_;  // not done: first those that have started
  size_t started_ = 0;
  uint64_t added_ = 0;
  uint64_t records_sent_ = 0;
  uint64_t records_done_ = 0;
  int puts_in_a_row_ = 0;
};

}  // namespace pacecar::rma
