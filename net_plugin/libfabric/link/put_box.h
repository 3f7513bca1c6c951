// Puts into a peer's memory, and the frames that say that all puts before them are in place. Over a
// connection for puts of its own: other frames go by one that may send ahead.
//
// Bounds: kFrames frames; who puts asks has_room() first, and says something after each row.
//
// Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <memory>

#include "net_plugin/libfabric/core/frame.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/fresh_pages.h"

namespace pacecar::fabric {

struct Put {
  const uint8_t* data = nullptr;
  size_t size = 0;
  const Memory* memory = nullptr;
  Window window;
  uint64_t operation = 0;  // whose it is
};

class PutBox {
 public:
  static constexpr uint32_t kFrames = kMaxRequests;

  PutBox(std::shared_ptr<Context> context, std::unique_ptr<SendConnection> connection)
      : context_(std::move(context)), connection_(std::move(connection)) {}
  ~PutBox();
  PutBox(const PutBox&) = delete;
  PutBox& operator=(const PutBox&) = delete;

  // `hello` goes first.
  Result<void> open(const Frame& hello);
  size_t nic() const { return connection_->nic(); }

  bool has_room() const { return frames_free_ > 0; }
  void put(const Put& put) { parts_.push_back({.is_put = true, .put = put}); }
  void say(const Frame& frame);
  bool idle() const { return parts_.empty(); }

  // Starts what can be. Errors: kPeer.
  Result<void> start();
  // Calls put_done(operation) for each put that is done, in order.
  template <typename PutDone>
  Result<void> finish(PutDone put_done) {
    while (started_ > 0 && settled(*parts_.front().request)) {
      const Part part = parts_.front();
      auto result = connection_->test(part.request);
      if (!result) return tl::unexpected(result.error());
      parts_.pop_front();
      --started_;
      if (part.is_put) {
        put_done(part.put.operation);
      } else {
        ++frames_free_;
      }
    }
    return {};
  }

 private:
  struct Part {
    bool is_put = false;
    Put put;
    uint32_t place = 0;  // of a frame
    Request* request = nullptr;
  };

  const std::shared_ptr<Context> context_;
  std::unique_ptr<SendConnection> connection_;
  OwnPages<Frame> frames_{kFrames};
  const Memory* memory_ = nullptr;
  std::deque<Part> parts_;
  size_t started_ = 0;  // of parts_, from the first
  uint32_t frames_free_ = kFrames;
  uint32_t next_place_ = 0;
};

}  // namespace pacecar::fabric
