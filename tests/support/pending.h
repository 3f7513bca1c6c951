// Requests as an application makes them for a messenger.
#pragma once

#include "transport/message/receive_queue.h"
#include "transport/message/send_queue.h"

namespace pacecar::test {

inline MessageSend& pending(MessageSend& send, const SendOperation& operation) {
  send.operation = operation;
  send.set(MessageRequest::State::kPending);
  return send;
}

// Without a buffer yet.
inline MessageReceive& pending(MessageReceive& receive) {
  receive.clear();
  receive.set(MessageRequest::State::kPending);
  return receive;
}

}  // namespace pacecar::test
