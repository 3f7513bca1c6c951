// What a rank knows of one other, or of itself: the records from it and to it, its gets and ours.
// Everything that it says is checked; nonsense fails this peer and no other.
//
// Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <optional>
#include <utility>

#include "transport/rma/arrivals.h"
#include "transport/rma/inbox.h"
#include "transport/rma/landing.h"
#include "transport/rma/operation.h"
#include "transport/rma/outbox.h"
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

  // Moves all that can move. True: something has come.
  bool advance();

  // Parts of an operation, in order. Where the peer has failed or left, the operation fails.
  void put(const Put& put, Operation& operation);
  void send(const Record& record, Operation* operation);
  // `record` is a get's, but for its number.
  void get(Record record, Operation& operation);
  // Done when all before is, and what has come from anybody can be seen.
  void flush(Operation& operation);
  // Where the peer puts what is for GPU memory of ours that the NIC does not reach.
  void land_in(const Landing& landing);
  // What it brought counts now.
  void on_arrival(const Arrival& arrival);
  // Nothing with it can go on, for a reason of ours.
  void give_up(const Error& why) {
    if (outbox_) fail(why);
  }
  // What has started leaves at once, and not with the next poll.
  void hurry() {
    if (outbox_) outbox_->hurry();
  }
  // No further operation has room, now.
  bool full() const { return outbox_ && !outbox_->room(); }

  // Nothing of ours is under way.
  bool idle() const { return !outbox_ || outbox_->idle(); }
  const std::optional<Error>& failure() const { return failure_; }
  // Once.
  std::optional<Error> newly_failed() {
    return failure_ && !std::exchange(reported_, true) ? failure_ : std::nullopt;
  }
  bool left() const { return left_; }

 private:
  // Gets of one end that the other has not answered.
  static constexpr size_t kMaxGets = 64;

  struct Get {
    Record record;
    Operation* operation;
  };
  struct Flush {
    uint64_t gets;
    Operation* operation;  // of which nothing else is left
  };

  Result<bool> take_records();
  Result<void> take(const Record& record);
  Result<void> add_signal(const Record& record);
  Result<void> answer(const Record& record);
  Result<void> deliver(const Record& record);
  Result<void> on_got(const Record& record);
  void ask();
  void finish_flushes();
  void forsake();
  void fail(const Error& cause);
  Error gone() const;
  tl::unexpected<Error> nonsense(const char* what) const;

  const size_t rank_;
  std::optional<Inbox> inbox_;  // none, and no outbox, once the peer has failed
  std::optional<Outbox> outbox_;
  Windows& windows_;
  Arrivals& arrivals_;
  const Landing* landing_ = nullptr;
  std::deque<Get> gets_;  // not done: first those that have been asked
  uint64_t gets_added_ = 0;
  uint64_t gets_asked_ = 0;
  uint64_t gets_answered_ = 0;
  uint64_t gets_done_ = 0;
  std::deque<uint64_t> answers_;  // parts of the outbox that end our answers
  std::deque<Flush> flushes_;
  std::optional<Error> failure_;
  bool reported_ = false;
  bool left_ = false;
};

}  // namespace pacecar::rma
