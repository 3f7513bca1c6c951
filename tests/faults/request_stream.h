// The requests of one end of a connection, in order: posted, then done. As in NCCL, only the oldest
// is tested. Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "net_plugin/host/host.h"

namespace pacecar::nccl {

class RequestStream {
 public:
  explicit RequestStream(size_t window) : requests_(window) {}

  size_t window() const { return requests_.size(); }  // requests in flight at most
  size_t posted() const { return posted_; }
  size_t done() const { return done_; }
  size_t in_flight() const { return posted_ - done_; }
  bool full() const { return in_flight() == window(); }

  // False when `request` is nullptr: the plugin accepts no request now.
  bool post(void* request) {
    if (request != nullptr) requests_[posted_++ % window()] = request;
    return request != nullptr;
  }
  // The bytes of the oldest request, if that has completed.
  std::optional<size_t> take(const Host& host) {
    std::array<int, 1> size{};
    if (in_flight() == 0 || !host.test(requests_[done_ % window()], size)) return {};
    ++done_;
    return static_cast<size_t>(size.front());
  }
  void reset() { posted_ = done_ = 0; }

 private:
  size_t posted_ = 0;
  size_t done_ = 0;
  std::vector<void*> requests_;
};

}  // namespace pacecar::nccl
