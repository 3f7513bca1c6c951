#include "transport/softnic/rc/rc_responder.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "transport/base/polled_memory.h"
#include "transport/base/seq.h"

namespace pacecar {
namespace {

constexpr uint8_t kGood = 0;  // no syndrome of a refusal
// Stands for "receiver not ready" with any delay.
constexpr uint8_t kNotReadySyndrome = roce::receiver_not_ready(0);

uint64_t execute(const roce::Packet& packet, uint64_t* place) {
  const std::atomic_ref<uint64_t> word(*place);
  if (packet.opcode == roce::Opcode::kFetchAdd) return word.fetch_add(packet.operand);
  uint64_t original = packet.compare;
  word.compare_exchange_strong(original, packet.operand);
  return original;
}

}  // namespace

RcResponder::RcResponder(const Config& config, FixedQueue<ReceiveRequest>& receives)
    : config_(config),
      receives_(receives),
      reads_(2 * config.read_depth),
      atomics_(2 * config.read_depth),
      expected_(config.first_psn) {}

void RcResponder::restart(uint32_t peer_queue_pair, uint64_t first_psn) {
  config_.peer_queue_pair = peer_queue_pair;
  expected_ = first_psn;
  reads_.clear();
  atomics_.clear();
  message_ = Message{};
  writes_received_ = 0;
  msn_ = 0;
  nak_ = refusal_ = 0;
  cause_ = CompletionStatus::kLocalError;
  gap_nak_sent_ = ack_due_ = false;
}

uint64_t RcResponder::packets_of(Bytes length) const {
  return std::max<uint64_t>(1, (length + config_.mtu - 1) / config_.mtu);
}

RcResponder::Outcome RcResponder::on_request(const roce::Packet& packet,
                                             const MemoryTable& memory) {
  if (!config_.reliable) return on_unreliable(packet, memory);
  const uint64_t psn = expand_psn(expected_, packet.psn);
  if (psn < expected_) return on_duplicate(packet, psn, memory);
  if (refused()) {  // our NAK may have been lost
    queue_nak(refusal_, expected_);
    return Outcome::kRefused;
  }
  if (psn > expected_) {
    if (!gap_nak_sent_) queue_nak(roce::kNakSequence, expected_);
    gap_nak_sent_ = true;
    return Outcome::kOutOfOrder;
  }
  const roce::Shape shape = roce::shape_of(packet.opcode);
  if (shape.kind == roce::Kind::kReadRequest) return on_read_request(packet, memory);
  if (shape.kind == roce::Kind::kAtomic) return on_atomic(packet, memory);
  const uint8_t syndrome = take(packet, shape, memory);
  if (syndrome == kNotReadySyndrome) {
    // The message begins again when its first packet is retransmitted.
    if (shape.first) message_.kind = roce::Kind::kUnknown;
    queue_nak(roce::receiver_not_ready(config_.rights.rnr_delay), expected_);
    gap_nak_sent_ = true;  // later packets are retransmitted, too
    return Outcome::kNotReady;
  }
  return syndrome == kGood ? finish(packet, shape) : refuse(syndrome, expected_);
}

RcResponder::Outcome RcResponder::on_unreliable(const roce::Packet& packet,
                                                const MemoryTable& memory) {
  const roce::Shape shape = roce::shape_of(packet.opcode);
  const uint64_t missing = (packet.psn - expected_) & kPsnMask;
  if (missing > 0 || shape.first) drop_message();
  expected_ += missing;
  const bool rest = !shape.first && message_.kind == roce::Kind::kUnknown;  // of a dropped message
  const uint8_t syndrome = rest ? roce::kNakSequence : take(packet, shape, memory);
  if (syndrome == kGood) return finish(packet, shape);
  if (syndrome == roce::kNakRemoteOperation) return Outcome::kRefused;  // our own memory is gone
  ++expected_;
  drop_message();
  if (rest) return Outcome::kOutOfOrder;
  return syndrome == kNotReadySyndrome ? Outcome::kNotReady : Outcome::kDropped;
}

void RcResponder::drop_message() {
  if (message_.kind == roce::Kind::kSend && message_.taken) kept_ = message_.receive;
  message_ = Message{};
}

ReceiveRequest RcResponder::take_receive() {
  if (kept_) return *std::exchange(kept_, std::nullopt);
  const ReceiveRequest receive = receives_.front();
  receives_.pop_front();
  return receive;
}

// Places a packet of a send or write: kGood, or the syndrome of the refusal.
uint8_t RcResponder::take(const roce::Packet& packet, roce::Shape shape,
                          const MemoryTable& memory) {
  if (shape.kind == roce::Kind::kWrite && !allows(config_.rights.access, Access::kRemoteWrite)) {
    return roce::kNakInvalidRequest;
  }
  uint8_t syndrome = kGood;
  if (shape.first) {
    syndrome =
        message_.kind == roce::Kind::kUnknown ? begin(packet, memory) : roce::kNakInvalidRequest;
  } else if (message_.kind != shape.kind) {
    syndrome = roce::kNakInvalidRequest;
  }
  if (syndrome == kGood) syndrome = check(packet, shape, memory);
  return syndrome == kGood ? place(packet, memory) : syndrome;
}

uint8_t RcResponder::begin(const roce::Packet& packet, const MemoryTable& memory) {
  const roce::Shape shape = roce::shape_of(packet.opcode);
  message_ = Message{.kind = shape.kind};
  if (shape.kind == roce::Kind::kSend) {
    if (!needs_receives()) return roce::kNakInvalidRequest;
    if (!has_receive()) return kNotReadySyndrome;
    message_.receive = take_receive();
    message_.taken = true;
    message_.length = message_.receive.length;
    message_.key = message_.receive.local_key;
    return kGood;
  }
  message_.address = packet.address;
  message_.length = packet.length;
  message_.key = packet.key;
  if (message_.length > roce::kMaxMessageBytes) return roce::kNakInvalidRequest;
  if (message_.length > 0 &&
      (!usable(message_.key, memory) ||
       memory.writable(message_.key, message_.address, message_.length) == nullptr)) {
    return roce::kNakRemoteAccess;
  }
  return kGood;
}

// Whether the packet fits the message.
uint8_t RcResponder::check(const roce::Packet& packet, roce::Shape shape,
                           const MemoryTable& memory) {
  const Bytes size = packet.payload.size();
  const bool fits = shape.last ? size <= config_.mtu : size == config_.mtu;
  const Bytes left = message_.length - message_.placed;
  if (!fits) return roce::kNakInvalidRequest;
  if (size > left) {
    if (shape.kind == roce::Kind::kSend) cause_ = CompletionStatus::kReceiveTooShort;
    return roce::kNakInvalidRequest;
  }
  if (shape.kind == roce::Kind::kWrite) {
    if (shape.last ? size != left : size == left) return roce::kNakInvalidRequest;
    if (shape.immediate && needs_receives() && !has_receive()) {
      return kNotReadySyndrome;
    }
  }
  if (shape.invalidate && !memory.window_of(packet.invalidated_key, config_.queue_pair)) {
    return roce::kNakRemoteAccess;
  }
  return kGood;
}

// The memory may have been deregistered since the message began.
uint8_t RcResponder::place(const roce::Packet& packet, const MemoryTable& memory) {
  const Bytes size = packet.payload.size();
  if (size == 0) return kGood;
  uint8_t* to = nullptr;
  if (message_.kind == roce::Kind::kSend) {
    to = message_.receive.local + message_.placed;
    if (!memory.owner_may_write(message_.key, to, size)) {
      cause_ = CompletionStatus::kReceiveGone;
      return roce::kNakRemoteOperation;
    }
  } else {
    to = memory.writable(message_.key, message_.address + message_.placed, size);
    if (to == nullptr) return roce::kNakRemoteAccess;
  }
  ordered_copy(to, packet.payload.data(), size);
  message_.placed += size;
  return kGood;
}

RcResponder::Outcome RcResponder::finish(const roce::Packet& packet, roce::Shape shape) {
  ++expected_;
  gap_nak_sent_ = false;
  nak_ = 0;
  ack_due_ = config_.reliable;
  if (!shape.last) return Outcome::kPlaced;
  ++msn_;
  const Bytes bytes = message_.placed;
  uint64_t receive = message_.receive.id;
  message_ = Message{};
  const bool send = shape.kind == roce::Kind::kSend;
  if (!send && !shape.immediate) return Outcome::kPlaced;
  writes_received_ += send ? 0 : 1;
  if (!send && needs_receives()) receive = take_receive().id;
  completion_ =
      Completion{.work_request = receive,
                 .bytes = bytes,
                 .immediate = shape.invalidate ? packet.invalidated_key : packet.immediate,
                 .kind = send ? CompletionKind::kReceivedSend : CompletionKind::kReceived,
                 .has_immediate = shape.immediate,
                 .invalidated = shape.invalidate,
                 .solicited = packet.solicited};
  return Outcome::kCompleted;
}

bool RcResponder::may_read(const roce::Packet& packet, const MemoryTable& memory) const {
  if (!allows(config_.rights.access, Access::kRemoteRead)) return false;
  return packet.length == 0 ||
         (usable(packet.key, memory) &&
          memory.readable(packet.key, packet.address, packet.length) != nullptr);
}

RcResponder::Outcome RcResponder::on_read_request(const roce::Packet& packet,
                                                  const MemoryTable& memory) {
  if (message_.kind != roce::Kind::kUnknown || packet.length > roce::kMaxMessageBytes ||
      !allows(config_.rights.access, Access::kRemoteRead)) {
    return refuse(roce::kNakInvalidRequest, expected_);
  }
  // A peer that went back too early may have more reads outstanding than agreed: drop this one.
  if (reads_.full()) return Outcome::kOutOfOrder;
  if (!may_read(packet, memory)) return refuse(roce::kNakRemoteAccess, expected_);
  push_read(packet, expected_, ++msn_, false);
  expected_ += packets_of(packet.length);
  gap_nak_sent_ = false;
  nak_ = 0;
  return Outcome::kRead;
}

RcResponder::Outcome RcResponder::on_atomic(const roce::Packet& packet, const MemoryTable& memory) {
  if (message_.kind != roce::Kind::kUnknown ||
      !allows(config_.rights.access, Access::kRemoteAtomic)) {
    return refuse(roce::kNakInvalidRequest, expected_);
  }
  if (reads_.full()) return Outcome::kOutOfOrder;
  uint64_t* const word =
      usable(packet.key, memory) ? memory.atomic_word(packet.key, packet.address) : nullptr;
  if (word == nullptr) {
    const bool aligned = packet.address % sizeof(uint64_t) == 0;
    return refuse(aligned ? roce::kNakRemoteAccess : roce::kNakInvalidRequest, expected_);
  }
  const Atomic done{.psn = expected_, .original = execute(packet, word)};
  if (atomics_.full()) atomics_.pop_front();
  atomics_.push(done);
  push_atomic(done, ++msn_);
  ++expected_;
  gap_nak_sent_ = false;
  nak_ = 0;
  return Outcome::kRead;
}

bool RcResponder::push_atomic(const Atomic& atomic, uint32_t msn) {
  return reads_.push(Read{.first_psn = atomic.psn,
                          .next_psn = atomic.psn,
                          .end_psn = atomic.psn + 1,
                          .msn = msn,
                          .original = atomic.original,
                          .atomic = true});
}

bool RcResponder::push_read(const roce::Packet& packet, uint64_t psn, uint32_t msn, bool repeated) {
  return reads_.push(Read{.first_psn = psn,
                          .next_psn = psn,
                          .end_psn = psn + packets_of(packet.length),
                          .address = packet.address,
                          .length = packet.length,
                          .key = packet.key,
                          .msn = msn,
                          .repeated = repeated});
}

// The peer has gone back: it needs the acknowledgement or the response again.
RcResponder::Outcome RcResponder::on_duplicate(const roce::Packet& packet, uint64_t psn,
                                               const MemoryTable& memory) {
  const roce::Kind kind = roce::shape_of(packet.opcode).kind;
  if (kind == roce::Kind::kAtomic) {
    for (size_t i = 0; i < atomics_.size(); ++i) {
      if (atomics_[i].psn != psn) continue;
      drop_reads_from(psn);
      return push_atomic(atomics_[i], msn_) ? Outcome::kRead : Outcome::kDuplicate;
    }
    return Outcome::kDuplicate;
  }
  if (kind != roce::Kind::kReadRequest) {
    ack_due_ = true;
    return Outcome::kDuplicate;
  }
  // Only a range requested before that may still be read: the network may deliver a request twice,
  // the second time when the reader has everything and the memory is deregistered.
  if (psn + packets_of(packet.length) > expected_) return Outcome::kDuplicate;
  if (!may_read(packet, memory)) return Outcome::kDuplicate;
  drop_reads_from(psn);
  return push_read(packet, psn, msn_, true) ? Outcome::kRead : Outcome::kDuplicate;
}

// A peer that requests `psn` again will also request all later reads again.
void RcResponder::drop_reads_from(uint64_t psn) {
  reads_.erase_if([&](const Read& read) { return read.end_psn > psn; });
}

RcResponder::Outcome RcResponder::refuse(uint8_t syndrome, uint64_t psn) {
  refusal_ = syndrome;
  queue_nak(syndrome, psn);
  return Outcome::kRefused;
}

void RcResponder::queue_nak(uint8_t syndrome, uint64_t psn) {
  nak_ = syndrome;
  nak_psn_ = psn;
}

bool RcResponder::next_answer(const MemoryTable& memory, roce::Packet* answer) {
  if (!reads_.empty() && next_response(memory, answer)) return true;
  *answer = roce::Packet{.opcode = roce::Opcode::kAck,
                         .destination_qp = config_.peer_queue_pair,
                         .msn = msn_ & static_cast<uint32_t>(kPsnMask)};
  if (nak_ != 0) {
    answer->syndrome = nak_;
    answer->psn = static_cast<uint32_t>(nak_psn_ & kPsnMask);
    nak_ = 0;
    ack_due_ = false;  // the response acknowledges all before it
    return true;
  }
  if (!ack_due_) return false;
  answer->syndrome = roce::kAckUnlimited;
  answer->psn = static_cast<uint32_t>((expected_ - 1) & kPsnMask);
  ack_due_ = false;
  return true;
}

// False: the memory is deregistered, or the right is withdrawn.
bool RcResponder::next_response(const MemoryTable& memory, roce::Packet* answer) {
  Read& read = reads_.front();
  if (read.atomic) {
    *answer = roce::Packet{.opcode = roce::Opcode::kAtomicAck,
                           .syndrome = roce::kAckUnlimited,
                           .destination_qp = config_.peer_queue_pair,
                           .psn = static_cast<uint32_t>(read.first_psn & kPsnMask),
                           .msn = read.msn & static_cast<uint32_t>(kPsnMask),
                           .original = read.original};
    reads_.pop_front();
    return true;
  }
  const Bytes offset = (read.next_psn - read.first_psn) * config_.mtu;
  const Bytes size = std::min(config_.mtu, read.length - offset);
  const bool allowed = size > 0 && allows(config_.rights.access, Access::kRemoteRead);
  const uint8_t* from = allowed ? memory.readable(read.key, read.address + offset, size) : nullptr;
  if (size > 0 && from == nullptr && read.repeated) {
    reads_.pop_front();
    return false;
  }
  if (size > 0 && from == nullptr) {
    refusal_ = roce::kNakRemoteAccess;
    queue_nak(refusal_, read.next_psn);
    reads_.clear();
    return false;
  }
  const bool first = read.next_psn == read.first_psn;
  const bool last = read.next_psn + 1 == read.end_psn;
  *answer = roce::Packet{.opcode = roce::opcode_of({roce::Kind::kReadResponse, first, last}),
                         .syndrome = first || last ? roce::kAckUnlimited : uint8_t{0},
                         .destination_qp = config_.peer_queue_pair,
                         .psn = static_cast<uint32_t>(read.next_psn & kPsnMask),
                         .msn = first || last ? read.msn & static_cast<uint32_t>(kPsnMask) : 0,
                         .payload = {from, size}};
  ++read.next_psn;
  if (last) reads_.pop_front();
  return true;
}

}  // namespace pacecar
