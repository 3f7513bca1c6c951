// Frames that go to one peer, in the order in which they are added. They are copied into messages;
// while several of these are on their way, those that follow gather in one. Frames may be added
// before there is a connection; they leave when it is there.
//
// Bounds: kMessages messages; who adds asks has_room() first. Answers that must be said find room
// beside them; a peer that asks and does not listen is failed by those who answer.
//
// Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "net_plugin/libfabric/core/frame.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/fresh_pages.h"

namespace pacecar::fabric {

class Outbox {
 public:
  static constexpr uint32_t kMessages = kMaxRequests;
  static constexpr size_t kMostAnswers = 4096;  // that wait for room

  explicit Outbox(std::shared_ptr<Context> context);
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // The connection is there; `hello` goes first.
  Result<void> open(std::unique_ptr<SendConnection> connection, const Frame& hello);
  bool is_open() const { return connection_ != nullptr; }
  size_t nic() const { return connection_->nic(); }

  bool has_room(size_t payload) const { return answers_.empty() && fits(payload); }
  // Where the frame's payload is to be written. Only with room.
  uint8_t* add(const Frame& frame);
  // An answer. False: there are too many that the peer does not take.
  bool answer(const Frame& frame, std::span<const uint8_t> payload);

  // Starts what can be; `patient`: more is coming. Errors: kPeer.
  Result<void> start(bool patient);
  // Takes back what has left. Errors: kPeer.
  Result<void> finish();
  // Frames that the connection does not have yet.
  bool holds() const { return started_ < parts_.size() || !answers_.empty(); }
  bool idle() const { return parts_.empty() && answers_.empty(); }

 private:
  // Beside these, what is added gathers until a message is full.
  static constexpr uint32_t kEagerMessages = 4;

  struct Part {
    uint32_t place = 0;
    size_t bytes = 0;
    Request* request = nullptr;
  };

  bool gathers(size_t bytes) const;
  bool fits(size_t payload) const;
  Result<bool> start_part(Part& part);

  const std::shared_ptr<Context> context_;
  std::unique_ptr<SendConnection> connection_;
  OwnPages<uint8_t> pages_{(kMessages + 1) * kMessageBytes};  // the last: the hello's
  const Memory* memory_ = nullptr;
  std::deque<Part> parts_;
  size_t started_ = 0;  // of parts_, from the first
  std::vector<uint32_t> free_places_;  // the one that was used last is taken first: it is in cache
  std::deque<std::vector<uint8_t>> answers_;
};

}  // namespace pacecar::fabric
