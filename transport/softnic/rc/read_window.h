// ReadWindow: how many bytes all queue pairs of a NIC together may have requested by reads and not
// received. Responses to reads are not acknowledged, so nothing slows down their senders. Therefore
// the reader requests only as much as its receive buffer holds. Thread rule: one thread at a time.
#pragma once

#include <limits>
#include <utility>

#include "transport/base/units.h"

namespace pacecar {

class ReadWindow {
 public:
  // `receive_bytes`: of the receive buffer, a quarter of which is for reads; 0: unknown, no limit.
  explicit ReadWindow(Bytes receive_bytes = 0)
      : limit_(receive_bytes == 0 ? std::numeric_limits<Bytes>::max() : receive_bytes / 4) {}

  // Nothing more may be requested. The last request may exceed the limit.
  bool full() const { return requested_ >= limit_; }
  // The largest request, so that several queue pairs can read at a time.
  Bytes piece() const { return limit_ / 4; }
  Bytes requested() const { return requested_; }

  // The bytes that one queue pair has requested.
  class Share {
   public:
    explicit Share(ReadWindow& window) : window_(&window) {}
    Share(Share&& other) noexcept
        : window_(other.window_), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&&) = delete;
    ~Share() { clear(); }

    void add(Bytes bytes) {
      bytes_ += bytes;
      window_->requested_ += bytes;
    }
    void remove(Bytes bytes) {
      bytes_ -= bytes;
      window_->requested_ -= bytes;
    }
    void clear() { remove(bytes_); }

   private:
    ReadWindow* window_;
    Bytes bytes_ = 0;
  };

 private:
  const Bytes limit_;
  Bytes requested_ = 0;
};

}  // namespace pacecar
