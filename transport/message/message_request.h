// One message operation as the application sees it: what MessageSend (send_queue.h) and
// MessageReceive (receive_queue.h) have in common. The application owns it and passes a pointer.
// The message layer refers to it until it is done: it writes the outcome and then the state, and
// does not touch the request afterwards.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

constexpr uint32_t kMaxGroup = 8;  // buffers of one receive

enum class MessageFailure : uint8_t {
  kNone,
  kPeerSilent,     // nothing came back within the limit
  kPeerClosed,     // the peer closed the connection first
  kPeerRefused,    // the peer's NIC refused the write: its buffer is gone
  kPeerAbandoned,  // the peer gave up its message: it failed, or its memory is gone
  kPeerProtocol,   // the peer has broken the protocol
  kTooLong,        // the message is larger than the receive buffer
  kMemoryGone,     // our own memory was deregistered first
};

class MessageRequest {
 public:
  enum class State : uint8_t { kFree, kPending, kDone, kFailed };

  MessageFailure failure = MessageFailure::kNone;  // Written before kDone or kFailed is.
  uint8_t count = 0;                               // buffers
  std::array<Bytes, kMaxGroup> sizes{};            // bytes moved

  State state() const { return state_.load(std::memory_order_acquire); }
  void set(State state) { state_.store(state, std::memory_order_release); }

 private:
  std::atomic<State> state_{State::kFree};
};

}  // namespace pacecar
