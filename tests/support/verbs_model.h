// A model of a queue pair's completions as a libibverbs program must see them: work requests
// complete in the order of posting.
//
// Work requests succeed one after the other, with a completion if signaled. From the first failure
// on every work request has a completion: the first with its error, the others as flushed.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

namespace pacecar::test {

struct Expected {
  uint64_t wr_id = 0;
  ibv_wc_opcode opcode = IBV_WC_SEND;
  uint32_t bytes = 0;
  bool signaled = true;
  bool with_immediate = false;
  uint32_t immediate = 0;
  // The status that it must have if all before it succeeded.
  ibv_wc_status status = IBV_WC_SUCCESS;
  // Checks memory after success; returns the difference as text; empty: none.
  std::function<std::string()> check = nullptr;
};

class ModelQueue {
 public:
  // Points to a description that is filled in later, such as the message that a receive gets.
  Expected& post(Expected expected) { return waiting_.emplace_back(std::move(expected)); }
  // From now on a work request is flushed, unless it has completed already.
  void may_flush() { may_flush_ = true; }
  // The fault of a completion as text; empty: none.
  std::string on_completion(const ibv_wc& wc);
  // Whether all expected completions have been seen.
  bool drained() const;
  bool failed() const { return failed_; }
  size_t size() const { return waiting_.size(); }
  void clear();

 private:
  std::string on_success(const ibv_wc& wc);

  std::deque<Expected> waiting_;
  bool may_flush_ = false;
  bool failed_ = false;
};

}  // namespace pacecar::test
