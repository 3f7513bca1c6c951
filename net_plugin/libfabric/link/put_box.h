// Puts into a peer's memory, each group followed by a frame: when the peer receives the frame, all
// puts before it are done. This takes a connection of its own, opened for puts: on the connection
// of other frames small messages may overtake puts (they are eager).
//
// Bounds: kFrames frames; callers check has_room() before a group of puts and its frame.
//
// Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <memory>

#include "net_plugin/libfabric/core/frame.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/fresh_pages.h"
#include "transport/base/return_if_error.h"

namespace pacecar::fabric {

struct Put {
  const uint8_t* data = nullptr;
  size_t size = 0;
  const Memory* memory = nullptr;
  Window window;
  uint64_t operation = 0;  // that this put belongs to
};

class PutBox {
 public:
  static constexpr uint32_t kFrames = kMaxRequests;

  PutBox(std::shared_ptr<Context> context, std::unique_ptr<SendConnection> connection)
      : context_(std::move(context)), connection_(std::move(connection)) {}
  ~PutBox();
  PutBox(const PutBox&) = delete;
  PutBox& operator=(const PutBox&) = delete;

  // Sends `hello` as the first frame.
  Result<void> open(const Frame& hello);
  size_t nic() const { return connection_->nic(); }

  bool has_room() const { return frames_free_ > 0; }
  void put(const Put& put) { entries_.push_back({.is_put = true, .put = put}); }
  void send_frame(const Frame& frame);
  bool idle() const { return entries_.empty(); }

  // Posts puts and frames as far as possible. Errors: kPeer.
  Result<void> start();
  // Calls put_done(operation) for each put that is done, in order.
  template <typename PutDone>
  Result<void> finish(PutDone put_done) {
    while (started_ > 0 && settled(*entries_.front().request)) {
      const Entry entry = entries_.front();
      RETURN_IF_ERROR(connection_->test(entry.request));
      entries_.pop_front();
      --started_;
      if (entry.is_put) {
        put_done(entry.put.operation);
      } else {
        ++frames_free_;
      }
    }
    return {};
  }

 private:
  struct Entry {
    bool is_put = false;
    Put put;
    uint32_t slot = 0;  // of a frame: its index in frames_
    Request* request = nullptr;
  };

  const std::shared_ptr<Context> context_;
  std::unique_ptr<SendConnection> connection_;
  OwnPages<Frame> frames_{kFrames};
  const Memory* memory_ = nullptr;
  std::deque<Entry> entries_;
  size_t started_ = 0;  // posted: the first ones of entries_
  uint32_t frames_free_ = kFrames;
  uint32_t next_slot_ = 0;
};

}  // namespace pacecar::fabric
