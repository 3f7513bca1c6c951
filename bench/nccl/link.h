// A rank's connections to the one so far further around the ring of ranks, and from the one as far
// before it, with the memory that is sent from and received into. Errors are thrown.
#pragma once

#include <fmt/format.h>
#include <sched.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "bench/nccl/board.h"
#include "bench/nccl/value_or_throw.h"
#include "net_plugin/host/host.h"

namespace pacecar::nccl {

// How a rank waits while others may fail.

// Calls step() until done(). Where a step has moved nothing, others may have the processor; the
// failure of another rank is thrown.
template <typename Done, typename Step>
void until(Board& board, const Done& done, const Step& step) {
  while (!done()) {
    if (step()) continue;
    value_or_throw(board.others_are_well());
    sched_yield();
  }
}

inline std::span<uint8_t> bytes_of(std::span<float> elements) {
  return {reinterpret_cast<uint8_t*>(elements.data()), elements.size_bytes()};
}

// The messages of one direction of a connection during an operation, in their order: posted, then
// done. As NCCL does, only the oldest is asked after.
class RequestStream {
 public:
  static constexpr size_t kWindow = 8;  // in flight

  size_t posted() const { return posted_; }
  size_t done() const { return done_; }
  bool may_post(size_t total) const { return posted_ < total && posted_ - done_ < kWindow; }
  // `request`: nullptr when the plugin said "again later"; then false.
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

struct Link {
  // Connects; every rank does.
  Link(const Host& host, Board& board, size_t rank, size_t distance, std::span<float> sent,
       std::span<float> received);
  void begin() { sends = receives = {}; }  // an operation
  void close(const Host& host);

  const size_t to;
  const size_t from;
  const Ends ends;
  Registration send_memory;
  Registration receive_memory;
  RequestStream sends;
  RequestStream receives;
};

}  // namespace pacecar::nccl
