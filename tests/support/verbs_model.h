// What the completions of a program of libibverbs must be: a queue pair's work requests in the
// order of their posting, with what each is to say.
//
// One work request after another completes well (told if it is signaled); from the first that does
// not, all are told, and all but that one as flushed.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

namespace pacecar::tests {

struct Expected {
  uint64_t wr_id = 0;
  ibv_wc_opcode opcode = IBV_WC_SEND;
  uint32_t bytes = 0;
  bool signaled = true;
  bool with_immediate = false;
  uint32_t immediate = 0;
  // What it is to fail with, if all before it is well; or success.
  ibv_wc_status status = IBV_WC_SUCCESS;
  // Looks at memory when it is done well; what is wrong, or nothing.
  std::function<std::string()> check = nullptr;
};

class ModelQueue {
 public:
  // What is said of it later, such as which message it takes, goes where this points to.
  Expected& post(Expected expected) { return waiting_.emplace_back(std::move(expected)); }
  // From here on what is not done is flushed, or done already.
  void may_flush() { may_flush_ = true; }
  // What is wrong with a completion; empty: nothing.
  std::string on_completion(const ibv_wc& wc);
  // All that must be told has been.
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

}  // namespace pacecar::tests
