// One rank of the group, which may be this one: the records from it and to it, its gets and ours.
// All that it sends is checked; an invalid record fails this peer and no other.
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "transport/rma/arrivals.h"
#include "transport/rma/landing.h"
#include "transport/rma/outbox.h"
#include "transport/rma/record.h"
#include "transport/rma/windows.h"

namespace pacecar::rma {

class Peer {
 public:
  Peer(size_t rank, Inbox inbox, Outbox outbox, Windows& windows, Arrivals& arrivals)
      : rank_(rank),
        inbox_(std::move(inbox)),
        outbox_(std::move(outbox)),
        windows_(windows),
        arrivals_(arrivals) {}

  bool advance();  // Makes progress. True: something has arrived.

  // The peer has failed or left: no operations with it.
  bool closed() const { return !outbox_ || left_; }
  Error closed_error() const;
  // These four add parts to an operation, in order. Not when closed(), except send().
  void put(const Put& put, Operation& operation);
  void send(const Record& record, Operation* operation);
  // `record` is that of a get; its kind and number are set here.
  void get(Record record, Operation& operation);
  // Done when all earlier operations are done, and arrivals from all ranks are visible.
  void flush(Operation& operation);
  void share(const Place& own);
  // Advertises the landing, where the peer puts data for GPU memory that our NIC does not reach.
  void land_in(const Landing& landing);
  void on_arrival(const Arrival& arrival);
  // All operations with the peer fail, because of a failure of this rank.
  void fail_all(const Error& why) {
    if (outbox_) fail(why);
  }
  // Before `memory` is deregistered: a waiting put cannot be skipped, as a later signal counts it.
  void withdraw(const Memory* memory);
  // Sends started parts at once, not with the next poll.
  void send_now() {
    if (outbox_) outbox_->send_now();
  }
  bool full() const { return outbox_ && (!outbox_->room() || gets_.size() >= Outbox::kMaxWaiting); }

  // Whether an answer to a get from that window of ours is not acknowledged.
  bool answers_from(WindowId id) const {
    return std::ranges::find(answers_, id, &Answer::window) != answers_.end();
  }
  bool idle() const { return !outbox_ || outbox_->idle(); }
  const std::optional<Error>& failure() const { return failure_; }
  // The peer's failure, once.
  std::optional<Error> newly_failed() {
    return failure_ && !std::exchange(reported_, true) ? failure_ : std::nullopt;
  }
  bool left() const { return left_; }

 private:
  static constexpr size_t kMaxGets = 64;  // The most gets that are not answered, in each direction.

  struct Get {
    Record record;
    Operation* operation;
  };
  struct Answer {
    uint64_t end;  // the number of its last part in the outbox
    WindowId window;
  };
  struct Flush {
    uint64_t gets;  // that it waits for
    Operation* operation;
  };

  Result<bool> take_records();
  Result<void> take(const Record& record);
  Result<void> add_signal(const Record& record);
  Result<void> answer(const Record& record);
  Result<void> deliver(const Record& record);
  Result<void> on_got(const Record& record);
  void request_gets();
  void finish_flushes();
  void abandon();
  void fail(const Error& cause);
  tl::unexpected<Error> invalid(const char* what) const;

  const size_t rank_;
  std::optional<Inbox> inbox_;  // empty, like the outbox, once the peer has failed
  std::optional<Outbox> outbox_;
  Windows& windows_;
  Arrivals& arrivals_;
  const Landing* landing_ = nullptr;
  std::deque<Get> gets_;  // not done; the requested ones first
  uint64_t gets_added_ = 0;
  uint64_t gets_requested_ = 0;
  uint64_t gets_answered_ = 0;
  uint64_t gets_done_ = 0;
  std::deque<Answer> answers_;  // not acknowledged
  std::deque<Flush> flushes_;
  std::optional<Error> failure_;
  bool reported_ = false;
  bool left_ = false;
};

}  // namespace pacecar::rma
