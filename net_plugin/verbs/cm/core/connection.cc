#include "net_plugin/verbs/cm/core/connection.h"

#include <algorithm>

namespace pacecar::ibverbs::cm {
namespace {

constexpr Duration kFirstWait = Duration::from_ms(50);
constexpr Duration kLongestWait = Duration::from_s(2);
// A peer that does not answer kDisconnect in this time is gone as well.
constexpr Duration kDisconnectLimit = Duration::from_s(1);
// The longest wait that a peer may request.
constexpr Duration kMostPatience = Duration::from_s(60);
// An established end probes a peer that has been silent for kProbe.
constexpr Duration kProbe = Duration::from_s(5);
constexpr Duration kFirstProbe = Duration::from_ms(250);
constexpr int kMostUnanswered = 6;

}  // namespace

const Message* Connection::send(const Message& message, Instant now) {
  sent_ = message;
  sent_.transaction = transaction_;
  sent_.local_id = local_id_;
  sent_.remote_id = remote_id_;
  wait_ = kFirstWait;
  due_ = now + wait_;
  given_up_ = now + (message.kind == Kind::kDisconnect ? kDisconnectLimit : limit_);
  return &sent_;
}

const Message* Connection::ask(const Message& question, Instant now) {
  transaction_ = question.transaction;
  state_ = State::kRequesting;
  return send(question, now);
}

void Connection::on_request(const Message& request) {
  remote_id_ = request.local_id;
  remote_queue_pair_ = request.queue_pair;
  transaction_ = request.transaction;
  state_ = State::kRequested;
}

const Message* Connection::answer(Message answer, Instant now) {
  answer.rejected = state_ == State::kReplied ? Kind::kReply : Kind::kRequest;
  send(answer, now);
  if (answer.kind == Kind::kFound) sent_.local_id = remote_id_;  // the number of the question
  if (answer.kind == Kind::kReply) {
    state_ = State::kReplying;
  } else {
    close(Notice::kNothing);
  }
  return &sent_;
}

const Message* Connection::ready(Instant now) {
  state_ = State::kEstablished;
  send({.kind = Kind::kReadyToUse}, now);  // repeated only after a repeated reply
  due_ = now + kFirstProbe;
  return &sent_;
}

const Message* Connection::disconnect(uint64_t transaction, Instant now) {
  transaction_ = transaction;
  state_ = State::kDisconnecting;
  return send({.kind = Kind::kDisconnect, .queue_pair = remote_queue_pair_}, now);
}

Connection::Step Connection::close(Notice notice) {
  state_ = State::kClosed;
  due_ = Instant::never();
  return {.notice = notice};
}

// In this state only probes are answered by kReceipt.
void Connection::note_alive(const Message& message, Instant now) {
  const Kind answer = sent_.kind == Kind::kReply ? Kind::kReadyToUse : Kind::kReceipt;
  if (unanswered_ > 0 && message.kind == answer) answers_probes_ = true;
  unanswered_ = 0;
  due_ = now + kProbe;
}

Connection::Step Connection::probe(Instant now) {
  if (unanswered_ == kMostUnanswered) {
    if (answers_probes_) return close(Notice::kSilent);
    due_ = Instant::never();
    return {};
  }
  ++unanswered_;
  due_ = now + kProbe;
  if (sent_.kind == Kind::kReply) return {.send = &sent_};
  answered_ = Message{.kind = Kind::kRequest, .transaction = transaction_, .local_id = local_id_};
  return {.send = &answered_};
}

Connection::Step Connection::on_message(const Message& message, Instant now) {
  if (state_ == State::kEstablished) note_alive(message, now);
  switch (message.kind) {
    case Kind::kRequest:  // repeated
    case Kind::kFind:
      if (state_ == State::kEstablished || state_ == State::kRequested) {
        answered_ = Message{.kind = Kind::kReceipt,
                            .transaction = message.transaction,
                            .local_id = local_id_,
                            .remote_id = remote_id_};
        return {.send = &answered_};
      }
      return {.send = state_ == State::kReplying || state_ == State::kClosed ? &sent_ : nullptr};
    case Kind::kFound: return state_ == State::kRequesting ? close(Notice::kReply) : Step{};
    case Kind::kReply:
      if (state_ == State::kRequesting) {
        remote_id_ = message.local_id;
        remote_queue_pair_ = message.queue_pair;
        state_ = State::kReplied;
        due_ = Instant::never();
        return {.notice = Notice::kReply};
      }
      // The peer repeats its reply, as our answer was lost.
      return {.send = sent_.kind == Kind::kReadyToUse || sent_.kind == Kind::kReject ? &sent_
                                                                                     : nullptr};
    case Kind::kReadyToUse:
      if (state_ != State::kReplying) return {};
      state_ = State::kEstablished;
      answers_probes_ = true;
      due_ = now + kProbe;
      return {.notice = Notice::kEstablished};
    case Kind::kReject:
      if (state_ == State::kRequesting || state_ == State::kReplying) {
        return close(Notice::kRejected);
      }
      return state_ == State::kEstablished ? close(Notice::kDisconnected) : Step{};
    case Kind::kReceipt:
      if (message.wait > 0 && (state_ == State::kRequesting || state_ == State::kReplying)) {
        wait_longer(message.wait, now);
      }
      return {};
    case Kind::kDisconnect: return on_disconnect(message);
    case Kind::kDisconnected:
      if (state_ == State::kDisconnecting) return close(Notice::kDisconnected);
      break;
  }
  return {};
}

// The peer has the message, and will answer within 4.096 us x 2^code.
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
  if (state_ == State::kEstablished) return probe(now);
  if (now >= given_up_) {
    return close(state_ == State::kDisconnecting ? Notice::kDisconnected : Notice::kUnreachable);
  }
  wait_ = std::min(wait_ * 2, kLongestWait);
  due_ = std::min(now + wait_, given_up_);
  return {.send = &sent_};
}

}  // namespace pacecar::ibverbs::cm
