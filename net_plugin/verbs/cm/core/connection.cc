#include "net_plugin/verbs/cm/core/connection.h"

#include <algorithm>

namespace pacecar::ibverbs::cm {
namespace {

constexpr Duration kFirstWait = Duration::from_ms(50);
constexpr Duration kLongestWait = Duration::from_s(2);
// A peer that does not answer kDisconnect in this time is gone itself.
constexpr Duration kDisconnectLimit = Duration::from_s(1);
// What a peer may ask us to wait for.
constexpr Duration kMostPatience = Duration::from_s(60);

}  // namespace

const Message* Connection::send(Kind kind, Instant now) {
  sent_.kind = kind;
  sent_.transaction = transaction_;
  sent_.local_id = local_id_;
  sent_.remote_id = remote_id_;
  wait_ = kFirstWait;
  due_ = now + wait_;
  given_up_ = now + (kind == Kind::kDisconnect ? kDisconnectLimit : limit_);
  return &sent_;
}

const Message* Connection::request(Message message, Instant now) {
  sent_ = message;
  transaction_ = message.transaction;
  state_ = State::kRequesting;
  return send(Kind::kRequest, now);
}

const Message* Connection::find(Message message, Instant now) {
  request(message, now);
  return send(Kind::kFind, now);
}

void Connection::on_request(const Message& request) {
  remote_id_ = request.local_id;
  transaction_ = request.transaction;
  state_ = State::kRequested;
}

const Message* Connection::reply(Message message, Instant now) {
  sent_ = message;
  state_ = State::kReplying;
  return send(Kind::kReply, now);
}

const Message* Connection::found(Message message) {
  sent_ = message;
  send(Kind::kFound, Instant());
  sent_.local_id = remote_id_;  // the number of the question
  close(Notice::kNothing);
  return &sent_;
}

const Message* Connection::ready(const Message& message) {
  sent_ = message;
  state_ = State::kEstablished;
  send(Kind::kReadyToUse, Instant());
  due_ = Instant::never();  // repeated only after a repeated reply
  return &sent_;
}

const Message* Connection::reject(Message message) {
  sent_ = message;
  sent_.rejected = state_ == State::kReplied ? Kind::kReply : Kind::kRequest;
  send(Kind::kReject, Instant());
  due_ = Instant::never();
  state_ = State::kClosed;
  return &sent_;
}

const Message* Connection::disconnect(uint32_t queue_pair, uint64_t transaction, Instant now) {
  sent_ = Message{.queue_pair = queue_pair};
  transaction_ = transaction;
  state_ = State::kDisconnecting;
  return send(Kind::kDisconnect, now);
}

Connection::Step Connection::close(Notice notice) {
  state_ = State::kClosed;
  due_ = Instant::never();
  return {.notice = notice};
}

Connection::Step Connection::on_message(const Message& message, Instant now) {
  switch (message.kind) {
    case Kind::kRequest:  // once more
    case Kind::kFind:
      return {.send = state_ == State::kReplying || state_ == State::kClosed ? &sent_ : nullptr};
    case Kind::kFound:
      return state_ == State::kRequesting ? close(Notice::kReply) : Step{};
    case Kind::kReply:
      if (state_ == State::kRequesting) {
        remote_id_ = message.local_id;
        state_ = State::kReplied;
        due_ = Instant::never();
        return {.notice = Notice::kReply};
      }
      // Our answer to it was lost.
      return {.send = sent_.kind == Kind::kReadyToUse || sent_.kind == Kind::kReject ? &sent_
                                                                                     : nullptr};
    case Kind::kReadyToUse:
      if (state_ != State::kReplying) return {};
      state_ = State::kEstablished;
      due_ = Instant::never();
      return {.notice = Notice::kEstablished};
    case Kind::kReject:
      if (state_ == State::kRequesting || state_ == State::kReplying) {
        return close(Notice::kRejected);
      }
      return state_ == State::kEstablished ? close(Notice::kDisconnected) : Step{};
    case Kind::kReceipt:
      if (state_ == State::kRequesting || state_ == State::kReplying) {
        wait_longer(message.wait, now);
      }
      return {};
    case Kind::kDisconnect:
      return on_disconnect(message);
    case Kind::kDisconnected:
      if (state_ == State::kDisconnecting) return close(Notice::kDisconnected);
      break;
  }
  return {};
}

// The peer has the message, and answers within 4.096 us times 2^code.
void Connection::wait_longer(uint8_t code, Instant now) {
  const Duration wait = std::min(kMostPatience, Duration::from_ns(int64_t{4096} << (code & 31)));
  due_ = now + wait;
  given_up_ = std::max(given_up_, due_ + limit_);
}

Connection::Step Connection::on_disconnect(const Message& message) {
  answered_ = Message{.kind = Kind::kDisconnected,
                      .transaction = message.transaction,
                      .local_id = local_id_,
                      .remote_id = message.local_id};
  const bool known = state_ == State::kReplied || state_ == State::kReplying ||
                     state_ == State::kEstablished || state_ == State::kDisconnecting;
  if (known) return {.notice = close(Notice::kDisconnected).notice, .send = &answered_};
  return {.send = &answered_};
}

Connection::Step Connection::on_time(Instant now) {
  if (now < due_) return {};
  if (now >= given_up_) {
    return close(state_ == State::kDisconnecting ? Notice::kDisconnected : Notice::kUnreachable);
  }
  wait_ = std::min(wait_ * 2, kLongestWait);
  due_ = std::min(now + wait_, given_up_);
  return {.send = &sent_};
}

}  // namespace pacecar::ibverbs::cm
