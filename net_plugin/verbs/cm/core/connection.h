// One end of a connection that is being made or ended: which message goes when, and what those of
// the peer mean (InfiniBand Architecture Specification vol. 1, 12.9: both sides' states).
//
//   active:  request -> kReply -> ready, established            rejected, or nobody answers
//   passive: on_request -> reply -> kEstablished                reject
//   both:    disconnect -> kDisconnected, or kDisconnected
//   UD:      find -> kReply: a question and its answer           on_request -> found
//
// A message that waits for an answer is sent again, more and more rarely. What the peer repeats is
// answered again.
//
// A peer whose process is killed sends no kDisconnect, so an established end probes a silent peer.
// The passive end repeats its reply, which every peer answers by kReadyToUse. The active end sends
// a request for no service: peers of this code answer by kReceipt, others ignore it. Its first
// probe, soon after the beginning, shows which. A peer that answers probes is gone when
// kMostUnanswered of them have no answer.
//
// Pure: time is an argument. Thread rule: one thread at a time.
#pragma once

#include <cstdint>

#include "net_plugin/verbs/cm/core/mad.h"
#include "transport/base/units.h"

namespace pacecar::ibverbs::cm {

enum class Notice : uint8_t {
  kNothing,
  kReply,         // the message has it: ready() or reject()
  kEstablished,   // as the passive end
  kRejected,      // the message says why
  kUnreachable,   // no answer within the limit
  kDisconnected,  // by either
};

class Connection {
 public:
  enum class State : uint8_t {
    kIdle,
    kRequesting,
    kReplied,    // active: the reply is here
    kRequested,  // passive: the request is here
    kReplying,
    kEstablished,
    kDisconnecting,
    kClosed,
  };
  // What a step has brought: a message to send at once, or none; and the event for the program.
  struct Step {
    Notice notice = Notice::kNothing;
    const Message* send = nullptr;  // valid until the next call
  };

  // `limit`: without an answer for so long the peer is not reached.
  Connection(uint32_t local_id, Duration limit) : local_id_(local_id), limit_(limit) {}

  State state() const { return state_; }
  uint32_t local_id() const { return local_id_; }
  uint32_t remote_id() const { return remote_id_; }

  // Numbers and kinds of messages are filled in. What they return is to be sent.
  const Message* request(Message message, Instant now);
  const Message* find(Message message, Instant now);
  void on_request(const Message& request);  // or a question; the first of it, to a new end
  const Message* reply(Message message, Instant now);
  const Message* found(Message message);
  const Message* ready(const Message& message, Instant now);
  // Of a request or a reply.
  const Message* reject(Message message);
  const Message* disconnect(uint64_t transaction, Instant now);

  // From the peer, to local_id() or a request once more.
  Step on_message(const Message& message, Instant now);
  Step on_time(Instant now);
  Instant due() const { return due_; }
  const Message* newest() const { return &sent_; }

 private:
  const Message* send(Kind kind, Instant now);
  Step close(Notice notice);
  void wait_longer(uint8_t code, Instant now);
  void note_alive(const Message& message, Instant now);
  Step probe(Instant now);
  Step on_disconnect(const Message& message);

  const uint32_t local_id_;
  const Duration limit_;
  uint32_t remote_id_ = 0;
  uint32_t remote_queue_pair_ = 0;
  State state_ = State::kIdle;
  Message sent_;      // the newest, to be repeated
  Message answered_;  // what has been sent beside it
  uint64_t transaction_ = 0;
  Instant due_ = Instant::never();
  Instant given_up_;
  Duration wait_;
  int unanswered_ = 0;           // probes
  bool answers_probes_ = false;  // the peer
};

}  // namespace pacecar::ibverbs::cm
