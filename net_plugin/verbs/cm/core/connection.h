// The state machine of one end of a connection: when it sends which message, and how it reacts to
// the peer's (InfiniBand Architecture Specification vol. 1, 12.9).
//   active:  ask -> kReply -> ready, established                rejected, or nobody answers
//   passive: on_request -> answer -> kEstablished               answer: kReject
//   both:    disconnect -> kDisconnected, or kDisconnected
//   UD:      ask -> kReply: a question and its answer            on_request -> answer
// A message without an answer is repeated, at growing intervals. A message that the peer repeats is
// answered again. A peer whose process is killed sends no kDisconnect, so an established end probes
// a silent peer. The passive end repeats its reply, which every peer answers by kReadyToUse. The
// active end sends a request without a service: peers of this code answer by kReceipt, others
// ignore it. The first probe, soon after the connection is established, shows which. A peer that
// answers probes is gone when kMostUnanswered probes have no answer.
// Pure: time is an argument. Thread rule: one thread at a time.
#pragma once

#include <cstdint>

#include "net_plugin/verbs/cm/core/mad.h"
#include "transport/base/units.h"

namespace pacecar::ibverbs::cm {

enum class Notice : uint8_t {
  kNothing,
  kReply,         // the message is it: call ready(), or answer() with kReject
  kEstablished,   // of the passive end
  kRejected,      // the message has the reason
  kUnreachable,   // no answer within the limit
  kDisconnected,  // by either end
  kSilent,        // the peer is dead
};

class Connection {
 public:
  enum class State : uint8_t {
    kIdle,
    kRequesting,
    kReplied,    // active: the reply has arrived
    kRequested,  // passive: the request has arrived
    kReplying,
    kEstablished,
    kDisconnecting,
    kClosed,
  };
  // The result of a step: the event for the program, and a message to send at once, or none.
  struct Step {
    Notice notice = Notice::kNothing;
    const Message* send = nullptr;  // valid until the next call
  };

  // `limit`: a peer that does not answer for this long is unreachable.
  Connection(uint32_t local_id, Duration limit) : local_id_(local_id), limit_(limit) {}

  State state() const { return state_; }
  uint32_t local_id() const { return local_id_; }
  uint32_t remote_id() const { return remote_id_; }

  // Each fills in the numbers of its message, and returns the message to send.
  const Message* ask(const Message& question, Instant now);  // kRequest or kFind
  void on_request(const Message& request);  // the first kRequest or kFind of a peer, to a new end
  // kReply, kFound, or kReject of a request or a reply.
  const Message* answer(Message answer, Instant now);
  const Message* ready(Instant now);
  const Message* disconnect(uint64_t transaction, Instant now);

  // A message of the peer to local_id(), or a repeated request.
  Step on_message(const Message& message, Instant now);
  Step on_time(Instant now);
  Instant due() const { return due_; }
  const Message* newest() const { return &sent_; }

 private:
  const Message* send(const Message& message, Instant now);
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
  Message sent_;      // the newest message, to be repeated
  Message answered_;  // the newest answer or probe, sent once
  uint64_t transaction_ = 0;
  Instant due_ = Instant::never();
  Instant given_up_;
  Duration wait_;
  int unanswered_ = 0;           // probes
  bool answers_probes_ = false;  // the peer
};

}  // namespace pacecar::ibverbs::cm
