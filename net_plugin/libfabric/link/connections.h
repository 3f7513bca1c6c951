// What goes over the connections to a peer: frames, puts. Thread rule: one thread at a time.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/link/same_host.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/fresh_pages.h"
#include "transport/base/return_if_error.h"

namespace pacecar::fabric {

// A connection, and memory of its own, which is registered with its NIC until it is closed.
template <typename Connection, typename T>
class ConnectionWithPages {
 protected:
  ConnectionWithPages(std::shared_ptr<Context> context, std::unique_ptr<Connection> connection,
                      size_t size)
      : context_(std::move(context)), connection_(std::move(connection)), pages_(size) {}
  ~ConnectionWithPages() {
    if (connection_ == nullptr) return;
    const size_t nic = connection_->nic();
    connection_.reset();
    if (memory_ != nullptr) (void)context_->deregister_memory(nic, memory_);
  }
  ConnectionWithPages(const ConnectionWithPages&) = delete;
  ConnectionWithPages& operator=(const ConnectionWithPages&) = delete;

  Result<void> register_pages() {
    ASSIGN_OR_RETURN(memory_,
                     context_->register_memory(connection_->nic(), pages_.data(), pages_.bytes()));
    return {};
  }

  const std::shared_ptr<Context> context_;
  std::unique_ptr<Connection> connection_;
  OwnPages<T> pages_;
  const Memory* memory_ = nullptr;
};

// Receives messages of frames from one peer, in order. When one is received, all puts before it are
// done. Receive buffers are reposted in batches: each repost costs a control write to the peer.
class Inbox final : public FrameSource, ConnectionWithPages<ReceiveConnection, uint8_t> {
 public:
  Inbox(std::shared_ptr<Context> context, std::unique_ptr<ReceiveConnection> connection)
      : ConnectionWithPages(std::move(context), std::move(connection),
                            kMaxMessages * kMessageBytes) {}

  Result<void> open();  // Errors: as register_memory and irecv.
  Result<std::span<const uint8_t>> next() override;
  Result<void> done() override;
  bool turn() override;

 private:
  static constexpr uint32_t kRepostBatch = 4;  // buffers; the peer can use the others meanwhile

  Result<void> post(uint32_t slot);

  std::array<Request*, kMaxMessages> requests_{};
  uint32_t oldest_ = 0;
  uint32_t to_repost_ = 0;                    // buffers before the oldest that are not posted
  std::optional<Result<TestResult>> tested_;  // result of the oldest request
};

// Sends frames to one peer, in the order in which they are added: over a connection, or through
// memory that it shares with a peer on this host. Frames are copied into messages. While several
// are outstanding, new frames gather in one, which is posted when the application makes progress
// and adds nothing, as it may wait for an answer. Frames may be added before there is a connection.
// Bounds: kMaxMessages messages; callers of add() check has_room() first. Replies that find no room
// wait in a queue. If it is full, the peer sends requests but receives no replies, and is failed.
class Outbox : ConnectionWithPages<SendConnection, uint8_t> {
 public:
  static constexpr size_t kMaxReplies = 4096;                 // that wait for a free message
  static constexpr size_t kMaxReplyBytes = size_t{64} << 20;  // more than a provider asks for
  enum class Coming : uint8_t {
    kMore,     // further frames, at once
    kUnknown,  // perhaps more: the application has just started an operation
    kNothing,  // none: the application makes progress
  };

  explicit Outbox(std::shared_ptr<Context> context);

  // Takes the connection over; `hello` is sent over it first. With `shared`, all later messages go
  // through that memory, and the connection wakes a peer that sleeps.
  Result<void> open(std::unique_ptr<SendConnection> connection, const Frame& hello,
                    std::unique_ptr<SharedSender> shared = nullptr);
  bool is_open() const { return connection_ != nullptr; }

  bool has_room(size_t payload) const { return replies_.empty() && fits(payload); }
  // Adds a frame; returns the address for its payload. Requires has_room().
  uint8_t* add(const Frame& frame);
  // Adds a reply. False: the queue of replies is full.
  bool reply(const Frame& frame, std::span<const uint8_t> payload);

  // Posts messages as far as possible; the last one may wait for more frames. Errors: kPeer.
  Result<void> start(Coming coming);
  Result<void> finish();  // Reuses the buffers of messages that are sent. Errors: kPeer.
  bool has_unsent_frames() const { return started_ < messages_.size() || !replies_.empty(); }
  // Whether all frames are with the peer, which gets them even if this process ends now.
  bool idle() const {
    const bool sent = messages_.empty() || messages_.front().request == nullptr;
    return sent && !has_unsent_frames();
  }

 private:
  // While more messages than these are outstanding, frames gather.
  static constexpr uint32_t kEagerMessages = 4;
  // Bytes of a message that is posted without waiting for more, so that several stay in the cache.
  static constexpr size_t kMostGathered = size_t{128} << 10;

  struct Message {
    uint32_t slot = 0;
    size_t bytes = 0;
    Request* request = nullptr;
    uint64_t number = 0;  // of a message in shared memory, which has no request
  };

  struct Reply {
    Frame frame;
    std::vector<uint8_t> payload;
  };

  uint8_t* at(uint32_t slot) const {
    return shared_ != nullptr ? shared_->slot(slot) : &pages_[slot * kMessageBytes];
  }
  uint8_t* greeting(size_t frame) const {
    return &pages_[kMaxMessages * kMessageBytes + frame * sizeof(Frame)];
  }
  bool gathers(size_t bytes) const;
  bool fits(size_t payload) const;
  bool may_gather_more(Coming coming) const;

  std::deque<Message> messages_;
  size_t started_ = 0;                // the number of posted messages, which are the oldest
  std::vector<uint32_t> free_slots_;  // a stack: the last used is in cache
  std::deque<Reply> replies_;
  size_t reply_bytes_ = 0;
  std::unique_ptr<SharedSender> shared_;
  std::deque<Request*> wakes_;
};

struct Put {
  const uint8_t* data = nullptr;
  size_t size = 0;
  const Memory* memory = nullptr;
  Window window;
  uint64_t operation = 0;  // that this put belongs to
};

// Puts into a peer's memory, each group followed by a frame: when the peer receives the frame, all
// puts before it are done. This takes a connection of its own, opened for puts: on the connection
// of other frames small messages may overtake puts (they are eager).
// Bounds: kFrames frames; callers check has_room() before a group of puts and its frame.
class PutBox : ConnectionWithPages<SendConnection, Frame> {
 public:
  static constexpr uint32_t kFrames = kMaxRequests;

  PutBox(std::shared_ptr<Context> context, std::unique_ptr<SendConnection> connection)
      : ConnectionWithPages(std::move(context), std::move(connection), kFrames) {}

  Result<void> open(const Frame& hello);  // Sends `hello` as the first frame.
  size_t nic() const { return connection_->nic(); }

  bool has_room() const { return frames_free_ > 0; }
  void put(const Put& put) { entries_.push_back({.is_put = true, .put = put}); }
  void send_frame(const Frame& frame);
  bool idle() const { return entries_.empty(); }

  Result<void> start();  // Posts puts and frames as far as possible. Errors: kPeer.
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
    uint32_t slot = 0;  // of a frame: its index in pages_
    Request* request = nullptr;
  };

  std::deque<Entry> entries_;
  size_t started_ = 0;  // posted: the first ones of entries_
  uint32_t frames_free_ = kFrames;
  uint32_t next_slot_ = 0;
};

}  // namespace pacecar::fabric
