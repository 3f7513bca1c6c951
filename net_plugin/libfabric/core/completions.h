// The completions that the application has not read yet, in order; errors are among them. Pure; one
// thread. The bound is kept by those who start operations: they check full() first.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

namespace pacecar::fabric {

struct Completion {
  void* context = nullptr;
  uint64_t flags = 0;
  uint64_t length = 0;
  void* buffer = nullptr;
  uint64_t data = 0;
  uint64_t tag = 0;
  uint64_t source = ~uint64_t{0};  // fi_addr_t of the sender, where FI_SOURCE is requested
  // Of an error only:
  int error = 0;          // fi_errno; 0: none
  uint64_t overflow = 0;  // bytes of the message beyond the buffer
  std::string why = {};   // text for fi_cq_strerror
};

class Completions {
 public:
  explicit Completions(size_t size) : size_(size) {}

  bool full() const { return waiting_.size() >= size_; }
  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }
  void add(Completion completion) { waiting_.push_back(std::move(completion)); }
  // Not while it is empty.
  const Completion& front() const { return waiting_.front(); }
  Completion take() {
    Completion taken = std::move(waiting_.front());
    waiting_.pop_front();
    return taken;
  }

 private:
  std::deque<Completion> waiting_;
  size_t size_;
};

}  // namespace pacecar::fabric
