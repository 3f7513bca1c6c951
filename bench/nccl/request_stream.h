// The messages of one direction of a connection during an operation, in their order: posted, then
// done. As NCCL does, only the oldest is asked after.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <optional>

#include "net_plugin/host/host.h"

namespace pacecar::nccl {

class RequestStream {
 public:
  static constexpr size_t kWindow = 8;  // in flight

  size_t posted() const { return posted_; }
  size_t done() const { return done_; }
  bool may_post(size_t total) const { return posted_ < total && posted_ - done_ < kWindow; }
  // `request`: nullptr if the plugin returned none; then false.
  bool post(void* request) {
    if (request != nullptr) requests_[posted_++ % kWindow] = request;
    return request != nullptr;
  }
  // True when the oldest came to its end. A receive must have brought `due` bytes.
  bool finish_send(const Host& host) { return finish(host, {}); }
  bool finish_receive(const Host& host, size_t due) { return finish(host, due); }

 private:
  bool finish(const Host& host, std::optional<size_t> due) {
    std::array<int, 1> size{};
    if (done_ == posted_ || !host.test(requests_[done_ % kWindow], size)) return false;
    if (due && static_cast<size_t>(size.front()) != *due) {
      throw HostError(fmt::format("received {} bytes where {} were due", size.front(), *due));
    }
    ++done_;
    return true;
  }

  size_t posted_ = 0;
  size_t done_ = 0;
  std::array<void*, kWindow> requests_{};
};

}  // namespace pacecar::nccl
