// Group: ranks that write into each other's memory. Each shares windows with all others, puts into
// theirs, adds to words there once what it has put is in place, and gets from them. All to one rank
// is done in the order in which it was asked for; a signal so comes after all puts before it.
//
// Nothing blocks but join(), share() and the destructor. Requests move while somebody calls test()
// or progress(); when nobody does, a thread of the group's takes over, so that others' gets and
// signals do not wait.
//
// A peer that fails, or says what makes no sense, fails the operations with it, and no others.
//
// Thread rule: any thread; share() by one at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "transport/api/pacecar.hpp"
#include "transport/base/fresh_pages.h"
#include "transport/rma/arrivals.h"
#include "transport/rma/landing.h"
#include "transport/rma/operation.h"
#include "transport/rma/peer.h"
#include "transport/rma/windows.h"

namespace pacecar::rma {

// In a window, of ours or of a peer's.
struct Location {
  const SharedWindow* window = nullptr;
  uint64_t offset = 0;
};

// Adds `value` to the word there, modulo 2^64.
struct Signal {
  Location word;  // at a multiple of 8 bytes
  uint64_t value = 1;
};

class Group {
 public:
  // Operations that have not been tested to their end.
  static constexpr size_t kMaxOperations = 1 << 16;

  // Joins all ranks; `handles` are those of their listeners, by rank, `listener` is ours at `nic`.
  // Why a peer fails later is logged. Blocks until all have come. Errors: kPeer (one does not),
  // kUnavailable (a peer is reached over another NIC only), and what making connections may say.
  static Result<std::unique_ptr<Group>> join(std::shared_ptr<Context> context, size_t nic,
                                             Listener& listener, std::span<const Handle> handles,
                                             size_t rank, uint32_t weight, LogSink log);
  // Waits 100 ms at most, so that what was done reaches the peers.
  ~Group();

  size_t ranks() const { return peers_.size(); }
  size_t nic() const { return nic_; }

  // Shares memory; all ranks do, with as many bytes or not, in the same order. Blocks until they
  // have. The same pointer for what all have shared already. Errors: kPeer, and what registering
  // memory may say.
  Result<SharedWindow*> share(const MemoryRange& range);
  // Ends one share(). Nobody waits for the others: that is the caller's to do.
  void unshare(SharedWindow* window);

  // Each starts an operation with that rank, also with this one. Errors: kInvalidArgument (no such
  // rank, bytes outside of a window), kUnavailable (kMaxOperations, or too many with that rank). A
  // put of 0 bytes needs no windows.
  Result<Operation*> put(size_t rank, const Location& from, size_t size, const Location& to,
                         const std::optional<Signal>& signal);
  Result<Operation*> get(size_t rank, const Location& from, size_t size, const Location& to);
  // Done when all that was started before with that rank is, and GPUs see what has come so far.
  Result<Operation*> flush(size_t rank);
  // True: it is done, and dead. Errors: kPeer; then it is dead, too.
  Result<bool> test(Operation* operation);

  void progress();
  // Why a peer has failed, the first one; nullopt: none has. To leave is no failure.
  std::optional<Error> failure() const;

 private:
  Group(std::shared_ptr<Context> context, size_t nic, size_t rank, size_t ranks, LogSink log);

  // With the lock held.
  bool advance();
  Result<Operation*> begin(size_t rank);
  Operation* take_operation();
  Result<void> check(size_t rank, const Location& bytes, size_t owner, size_t size) const;
  bool idle() const;

  Result<void> prepare(const std::shared_ptr<const CopyEngine>& engine, bool staged);
  void announce(const Place& own);
  bool count_arrivals();
  void keep();

  const std::shared_ptr<Context> context_;
  const size_t nic_;
  const size_t rank_;
  const LogSink log_;
  mutable std::mutex mutex_;  // of all below, but what says otherwise
  std::deque<Operation> operations_;
  std::vector<Operation*> free_;
  OwnPages<Record> records_;  // of all peers: kRecords that come, and kRecords that go, of each
  const Memory* records_memory_ = nullptr;
  std::unique_ptr<Landing> landing_;  // once there is memory that the NIC does not reach
  Windows windows_;
  Arrivals arrivals_;
  std::vector<Peer> peers_;  // by rank
  bool polled_ = true;       // since the last signal that left at once
  std::optional<Error> failure_;

  std::atomic<uint64_t> calls_{0};  // of test() and progress(); without the lock
  std::condition_variable stopping_;
  bool stop_ = false;
  std::thread keeper_;
};

}  // namespace pacecar::rma
