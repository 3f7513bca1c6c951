// Group: ranks that write into each other's memory. Each advertises windows to all others, puts
// into theirs, adds to words there (signals), and gets from them. Operations with one rank are in
// the order of their start, so a signal arrives after all earlier puts. join(), share(), unshare()
// and the destructor block; so does an operation while Outbox::kMaxWaiting parts with its rank are
// pending, as NCCL drops an operation that is refused (its queues hold 256 of them for each context
// and rank). Requests progress in calls of test() and progress(). If there are none, a thread of
// the group takes over, so that the peers' gets and signals do not wait. If a peer fails or sends
// invalid records, the operations with that peer fail, and no others. Thread rule: any thread;
// share() by one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transport/api/pacecar.hpp"
#include "transport/base/fresh_pages.h"
#include "transport/engine/own_process.h"
#include "transport/engine/progress_driver.h"
#include "transport/rma/arrivals.h"
#include "transport/rma/landing.h"
#include "transport/rma/peer.h"
#include "transport/rma/windows.h"

namespace pacecar::rma {

// A place in a window of this rank or of a peer.
struct Location {
  const SharedWindow* window = nullptr;
  uint64_t offset = 0;
};

// Adds `value` to the word there, modulo 2^64.
struct Signal {
  Location word;  // at a multiple of 8 bytes
  uint64_t value = 1;
};

class Group final : private Driven {
 public:
  // Joins all ranks; `handles` belong to their listeners, by rank, `listener` is ours at `nic`.
  // Later failures of peers are logged. Blocks until all are connected. Errors: kPeer (one is
  // missing), kUnavailable (a peer is reached over another NIC only), and connection errors.
  static Result<std::unique_ptr<Group>> join(std::shared_ptr<Context> context, size_t nic,
                                             Listener& listener, std::span<const Handle> handles,
                                             size_t rank, uint32_t weight, LogSink log);
  ~Group();  // Waits at most 100 ms for the last records to reach the peers.

  size_t ranks() const { return peers_.size(); }
  size_t nic() const { return nic_; }

  // Shares memory. All ranks must call it in the same order, with any sizes; it blocks until they
  // have. Returns the same pointer if all ranks have shared the same memory before. Errors: kPeer,
  // and the errors of registering memory.
  Result<SharedWindow*> share(const MemoryRange& range);
  // Ends one share(). The caller must have waited for the ranks' operations with the window; this
  // call waits until the peers have acknowledged our answers to their gets.
  void unshare(SharedWindow* window);

  // Each starts an operation with that rank, which may be this one. Errors: kInvalidArgument (no
  // such rank, bytes outside of a window), kPeer (the rank has failed or left). A put of 0 bytes
  // needs no windows.
  Result<Operation*> put(size_t rank, const Location& from, size_t size, const Location& to,
                         const std::optional<Signal>& signal);
  Result<Operation*> get(size_t rank, const Location& from, size_t size, const Location& to);
  // Done when all earlier operations with that rank are done, and GPUs see all earlier arrivals.
  Result<Operation*> flush(size_t rank);
  // True: the operation is over, and its pointer is invalid. An error (kPeer) is one for ever, as
  // NCCL tests a failed operation again.
  Result<bool> test(Operation* operation);

  void progress();
  // The first failure of a peer; nullopt: none. A peer that leaves has not failed.
  std::optional<Error> failure() const;

 private:
  Group(std::shared_ptr<Context> context, size_t nic, size_t rank, size_t ranks, LogSink log);

  // With the lock held.
  bool advance();
  Result<Operation*> begin(std::unique_lock<OwnMutex>& lock, size_t rank);
  Result<void> check(size_t rank, const Location& bytes = {}, size_t owner = 0,
                     size_t size = 0) const;

  Result<void> prepare(const std::shared_ptr<const CopyEngine>& engine, bool staged);
  void release(std::unique_lock<OwnMutex>& lock, const std::optional<OwnMemory>& own);
  template <typename Waits>
  void progress_while(std::unique_lock<OwnMutex>& lock, const Waits& waits);
  bool count_arrivals();
  // The thread that serves peers while the application does not call.
  Turn take_turn() override;
  void prepare_to_sleep() override;
  void sleep(Instant until, int bell) override;

  const std::shared_ptr<Context> context_;
  const size_t nic_;
  const size_t rank_;
  const LogSink log_;
  mutable OwnMutex mutex_;  // guards all below, except as noted
  std::deque<Operation> operations_;
  std::vector<Operation*> free_;
  OwnPages<Record> records_;  // of each peer kRecords to receive and kRecords to send
  const Memory* records_memory_ = nullptr;
  std::unique_ptr<Landing> landing_;  // made for the first memory that the NIC does not reach
  Windows windows_;
  Arrivals arrivals_;
  std::vector<Peer> peers_;  // by rank
  bool polled_ = true;       // since the last signal that left at once
  std::optional<Error> failure_;

  std::unique_ptr<ProgressDriver> driver_;
};

}  // namespace pacecar::rma
