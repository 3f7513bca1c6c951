// Sends frames to one peer, in the order in which they are added: over a connection, or through
// memory that it shares with a peer on this host. Frames are copied into messages. While several
// messages are outstanding, new frames are gathered in one message. It is posted when the
// application makes progress and adds nothing, as it may wait for an answer to these frames. Frames
// may be added before there is a connection; they are sent when it is open.
//
// Bounds: kMaxMessages messages; callers of add() check has_room() first. Replies that find no room
// wait in a queue of kMaxReplies. A full queue means that the peer sends requests but receives no
// replies; the caller of reply() fails such a peer.
//
// Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/link/shared_ring.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/fresh_pages.h"

namespace pacecar::fabric {

class Outbox {
 public:
  static constexpr size_t kMaxReplies = 4096;  // that wait for a free message
  // Which frames will be added next.
  enum class Coming : uint8_t {
    kMore,     // further frames, at once
    kUnknown,  // perhaps more: the application has just started an operation
    kNothing,  // none: the application makes progress
  };

  explicit Outbox(std::shared_ptr<Context> context);
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // Takes the connection over; `hello` is sent over it first. With `shared`, all later messages go
  // through that memory, and the connection wakes a peer that sleeps.
  Result<void> open(std::unique_ptr<SendConnection> connection, const Frame& hello,
                    std::unique_ptr<SharedSender> shared = nullptr);
  bool is_open() const { return connection_ != nullptr; }

  bool has_room(size_t payload) const { return replies_.empty() && fits(payload); }
  // Adds a frame; returns the address for its payload. Requires has_room().
  uint8_t* add(const Frame& frame);
  // Adds a reply. False: kMaxReplies replies wait already.
  bool reply(const Frame& frame, std::span<const uint8_t> payload);

  // Posts messages as far as possible; the last one may wait for more frames. Errors: kPeer.
  Result<void> start(Coming coming);
  // Reuses the buffers of messages that are sent. Errors: kPeer.
  Result<void> finish();
  // Whether frames are not posted yet.
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
  void share(std::unique_ptr<SharedSender> shared);
  bool gathers(size_t bytes) const;
  bool fits(size_t payload) const;
  bool may_gather_more(Coming coming) const;
  Result<bool> start_message(Message& message);
  Result<bool> is_sent(const Message& message);
  void wake();

  const std::shared_ptr<Context> context_;
  std::unique_ptr<SendConnection> connection_;
  // The last message's memory holds kHello and kWake, which are never overwritten.
  OwnPages<uint8_t> pages_{(kMaxMessages + 1) * kMessageBytes};
  const Memory* memory_ = nullptr;
  std::deque<Message> messages_;
  size_t started_ = 0;                // so many messages, the oldest, are posted
  std::vector<uint32_t> free_slots_;  // a stack: the last used is in cache
  std::deque<Reply> replies_;
  std::unique_ptr<SharedSender> shared_;
  std::deque<Request*> wakes_;
};

}  // namespace pacecar::fabric
