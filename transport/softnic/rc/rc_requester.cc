#include "transport/softnic/rc/rc_requester.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/polled_memory.h"
#include "transport/base/seq.h"

namespace pacecar {
namespace {

// At least one of this many packets requests an acknowledgement.
constexpr uint32_t kPacketsPerQuestion = 16;
constexpr size_t kSamples = 64;
// Packets of a read that are requested at a time, or more if the peer allows few outstanding reads.
// The responses to shorter pieces would leave in short bursts.
constexpr uint64_t kPiecePackets = 64;

CompletionStatus status_of(uint8_t syndrome) {
  switch (syndrome) {
    case roce::kNakRemoteAccess: return CompletionStatus::kRemoteAccessError;
    case roce::kNakRemoteOperation: return CompletionStatus::kRemoteFailed;
    default: return CompletionStatus::kRemoteRefused;
  }
}

roce::Kind kind_of(Opcode opcode) {
  const bool send = opcode == Opcode::kSend || opcode == Opcode::kSendWithImm ||
                    opcode == Opcode::kSendInvalidate;
  return send ? roce::Kind::kSend : roce::Kind::kWrite;
}

bool has_immediate(Opcode opcode) {
  return opcode == Opcode::kWriteWithImm || opcode == Opcode::kSendWithImm;
}

}  // namespace

RcRequester::RcRequester(const Config& config, ReadWindow& reads)
    : config_(config),
      paths_(PathPolicy::kSticky, config.paths, config.path_seed),
      requests_(config.work_requests),
      unacknowledged_(config.first_psn),
      next_(config.first_psn),
      highest_(config.first_psn),
      allocated_(config.first_psn),
      reading_(reads),
      pieces_(kMostReads),
      read_packets_(std::max<uint64_t>(1, reads.piece() / config.mtu)),
      samples_(kSamples),
      rtt_(config.loss) {}

void RcRequester::start(const StandardSending& sending, uint64_t first_psn) {
  PACECAR_CHECK(requests_.empty());
  config_.sending = sending;
  config_.sending.read_depth = std::max<uint8_t>(1, sending.read_depth);
  begin_at(first_psn);
}

Bytes RcRequester::work_request_bytes(uint32_t work_requests) {
  return std::bit_ceil(work_requests) * sizeof(Posted) + kSamples * sizeof(Sample) +
         kMostReads * sizeof(uint64_t);
}

size_t RcRequester::post(std::span<const WorkRequest> work_requests) {
  size_t accepted = 0;
  for (const WorkRequest& work_request : work_requests) {
    if (requests_.full()) break;
    requests_.push(Posted{.work_request = work_request,
                          .packets = packets_of(work_request),
                          .over = work_request.opcode == Opcode::kNothing});
    if (!posted(end_of_requests() - 1).is_read()) unacknowledged_bytes_ += work_request.length;
    ++accepted;
  }
  advance_cursors();
  return accepted;
}

uint32_t RcRequester::packets_of(const WorkRequest& work_request) const {
  const Bytes packets = (work_request.length + config_.mtu - 1) / config_.mtu;
  return std::max<uint32_t>(1, static_cast<uint32_t>(packets));
}

bool RcRequester::has_work() const {
  if (failure_ != CompletionStatus::kOk || receiver_waits_) return false;
  if (probe_) return true;
  if (cursor_ == end_of_requests() || full()) return false;
  const Posted& next = posted(cursor_);
  if (next.work_request.fenced && !pieces_.empty()) return false;
  // A silent peer must not use up the read window: one packet at a time is requested from it.
  return !next.is_read() || pieces_.size() < (probes_ > 0 ? 1 : config_.sending.read_depth);
}

// The payload of the request's packets before `psn`.
Bytes RcRequester::bytes_before(const Posted& posted, uint64_t psn) const {
  return std::min(posted.work_request.length, (psn - posted.first_psn) * config_.mtu);
}

// The end of the piece of a read that contains `psn`.
uint64_t RcRequester::piece_end(const Posted& posted, uint64_t psn) const {
  if (probes_ > 0) return psn + 1;
  const uint64_t window = config_.window_packets;
  const uint64_t wanted =
      std::max(window / config_.sending.read_depth, std::min(window, kPiecePackets));
  const uint64_t piece = std::min(wanted, read_packets_);
  return std::min(posted.end(), posted.first_psn + ((psn - posted.first_psn) / piece + 1) * piece);
}

void RcRequester::start(Posted& posted) {
  posted.started = true;
  posted.first_psn = allocated_;
  if (posted.over) posted.packets = 0;
  allocated_ += posted.packets;
}

// Moves the cursors over finished requests: acknowledged, sent, or never to be sent.
void RcRequester::advance_cursors() {
  for (; cursor_ < end_of_requests(); ++cursor_) {
    Posted& request = posted(cursor_);
    if (!request.started && request.over) start(request);
    if (!request.started || next_ < request.end()) break;
  }
  for (; oldest_ < cursor_ && unacknowledged_ >= posted(oldest_).end(); ++oldest_) {
    confirmed_ += posted(oldest_).counted() ? 1 : 0;
  }
}

Bytes RcRequester::next_bytes() const {
  const uint64_t request = probe_ ? oldest_ : cursor_;
  if (request == end_of_requests()) return 0;
  const Posted& next = posted(request);
  if (next.is_read()) return 0;
  const uint64_t psn = probe_ ? unacknowledged_ : next_;
  const Bytes before = next.started ? bytes_before(next, psn) : 0;
  return std::min(config_.mtu, next.work_request.length - before);
}

bool RcRequester::next_packet(Instant now, bool ask, Outgoing* out) {
  if (!has_work()) return false;
  const bool probing = probe_ && unacknowledged_ < next_;
  probe_ = false;
  if (probing) {
    // The answer to the oldest packet shows what else is missing.
    if (!fill(posted(oldest_), unacknowledged_, out)) return false;
    out->retransmission = true;
    out->packet.ack_request = true;
    probe_mark_ = next_;
    samples_.clear();  // the answer will not show which transmission it is for
    return true;
  }
  if (cursor_ == end_of_requests()) return false;
  Posted& next = posted(cursor_);
  if (!next.started) start(next);
  const uint64_t psn = next_;
  if (!fill(next, psn, out)) return false;
  out->retransmission = psn < highest_;
  if (next.is_read()) {
    next_ = piece_end(next, psn);
    pieces_.push(next_);
    reading_.add(bytes_before(next, next_) - bytes_before(next, psn));
  } else {
    next_ = psn + 1;
    ask |= ++unasked_ >= kPacketsPerQuestion || full();
    ask |= out->retransmission && in_flight_ == 0;
    out->packet.ack_request = config_.reliable && (out->packet.ack_request || ask);
    in_flight_ += out->packet.payload.size();
  }
  if (out->packet.ack_request) unasked_ = 0;
  on_sent(psn, out->packet.ack_request, now);
  advance_cursors();
  return true;
}

void RcRequester::on_sent(uint64_t psn, bool timed, Instant now) {
  if (idle() && config_.reliable) {
    last_answer_ = now;
    deadline_ = now + rtt_.probe_timeout();
  }
  highest_ = std::max(highest_, next_);
  // Retransmissions are sampled, too: they usually follow a NAK, so the first one was dropped.
  if (timed) samples_.push({psn, now});
}

// Makes the packet. False: the memory is deregistered, which fails the connection, because RC
// cannot leave out a part of a message.
bool RcRequester::fill(const Posted& posted, uint64_t psn, Outgoing* out) {
  if (posted.revoked) {
    fail(CompletionStatus::kMemoryGone);
    return false;
  }
  out->packet = roce::Packet{.destination_qp = config_.peer_queue_pair,
                             .psn = static_cast<uint32_t>(psn & kPsnMask)};
  out->packet.unreliable = !config_.reliable;
  if (!posted.is_read()) {
    fill_message(posted, psn, &out->packet);
    return true;
  }
  if (posted.is_atomic()) {
    fill_atomic(posted.work_request, &out->packet);
    return true;
  }
  const Bytes offset = bytes_before(posted, psn);
  out->packet.opcode = roce::Opcode::kReadRequest;
  out->packet.address = posted.work_request.remote + offset;
  out->packet.key = posted.work_request.remote_key;
  out->packet.length = static_cast<uint32_t>(bytes_before(posted, piece_end(posted, psn)) - offset);
  return true;
}

void RcRequester::fill_atomic(const WorkRequest& work_request, roce::Packet* packet) {
  const bool swap = work_request.opcode == Opcode::kCompareSwap;
  packet->opcode = swap ? roce::Opcode::kCompareSwap : roce::Opcode::kFetchAdd;
  packet->ack_request = true;
  packet->address = work_request.remote;
  packet->key = work_request.remote_key;
  packet->operand = work_request.operand;
  packet->compare = work_request.compare;
}

void RcRequester::fill_message(const Posted& posted, uint64_t psn, roce::Packet* packet) {
  const WorkRequest& work_request = posted.work_request;
  const bool first = psn == posted.first_psn;
  const bool last = psn + 1 == posted.end();
  const bool immediate = last && has_immediate(work_request.opcode);
  const bool invalidate = last && work_request.opcode == Opcode::kSendInvalidate;
  const roce::Kind kind = kind_of(work_request.opcode);
  const Bytes offset = bytes_before(posted, psn);
  packet->opcode = roce::opcode_of({kind, first, last, immediate, invalidate});
  packet->ack_request = last;
  packet->solicited = last && work_request.solicited;
  if (kind == roce::Kind::kWrite && first) {
    packet->address = work_request.remote;
    packet->key = work_request.remote_key;
    packet->length = static_cast<uint32_t>(work_request.length);
  }
  if (immediate) packet->immediate = work_request.immediate;
  if (invalidate) packet->invalidated_key = work_request.immediate;
  packet->payload = std::span(work_request.local + offset, bytes_before(posted, psn + 1) - offset);
}

SendProgress RcRequester::on_handed_over() {
  SendProgress progress;
  advance_to(std::max(taken_, unacknowledged_), &progress);
  taken_ = next_;
  if (progress.acked > 0 && std::exchange(congested_, false)) progress.marked = progress.acked;
  return progress;
}

// Everything before `psn` is acknowledged.
void RcRequester::advance_to(uint64_t psn, SendProgress* progress) {
  for (uint64_t request = oldest_; unacknowledged_ < psn; ++request) {
    const Posted& sent = posted(request);
    const uint64_t end = std::min(psn, sent.end());
    const Bytes before = bytes_before(sent, unacknowledged_);
    const uint64_t flying = std::clamp(next_, unacknowledged_, end);
    const Bytes landed = bytes_before(sent, flying) - before;
    if (sent.is_read()) {
      reading_.remove(landed);
    } else {
      const Bytes acked = bytes_before(sent, end) - before;
      progress->acked += acked;
      unacknowledged_bytes_ -= acked;
      in_flight_ -= landed;
    }
    unacknowledged_ = end;
  }
  next_ = std::max(next_, unacknowledged_);
  while (!pieces_.empty() && pieces_.front() <= unacknowledged_) pieces_.pop_front();
  advance_cursors();
}

bool RcRequester::acknowledge_before(uint64_t psn, Instant now, SendProgress* progress) {
  if (psn <= unacknowledged_) return true;
  uint64_t limit = psn;
  for (uint64_t request = oldest_; request < end_of_requests(); ++request) {
    const Posted& sent = posted(request);
    if (!sent.started || sent.first_psn >= psn) break;
    if (!sent.is_read()) continue;
    limit = std::max(sent.first_psn, unacknowledged_);  // only its response acknowledges a read
    break;
  }
  if (limit > unacknowledged_) {
    advance_to(limit, progress);
    on_progress(now);
    if (congested_) {
      progress->marked = progress->acked;
      congested_ = false;
    }
  }
  return limit == psn;
}

void RcRequester::take_sample(uint64_t psn, Instant arrival, Instant now, SendProgress* progress) {
  while (!samples_.empty() && samples_.front().psn <= psn) {
    const Sample sample = samples_.front();
    samples_.pop_front();
    if (sample.psn != psn) continue;  // the answer to a later packet
    progress->rtt = arrival - sample.sent;
    rtt_.add(now - sample.sent);  // the timeout includes the time in this host
  }
}

SendProgress RcRequester::on_ack(const roce::Packet& ack, Instant arrival, Instant now) {
  SendProgress progress;
  const uint64_t psn = expand_psn(unacknowledged_, ack.psn);
  const bool positive = roce::classify(ack.syndrome) == roce::Syndrome::kAck;
  // A NAK acknowledges all packets before it, and names one that has been sent.
  const uint64_t end = positive ? psn + 1 : psn;
  if (psn >= highest_ || end < unacknowledged_) return progress;
  if (positive) take_sample(psn, arrival, now, &progress);
  const bool news = end > unacknowledged_;
  const bool complete = acknowledge_before(end, now, &progress);
  if (!complete && !gone_back_) go_back(&progress);  // the response to a read is missing
  if (positive) {
    // The answer to a probe shows what of the packets before it is missing.
    if (news && unacknowledged_ < probe_mark_ && !gone_back_) go_back(&progress);
  } else if (complete) {
    on_nak(ack.syndrome, now, &progress);
  }
  return progress;
}

void RcRequester::on_nak(uint8_t syndrome, Instant now, SendProgress* progress) {
  if (syndrome == roce::kNakSequence) {
    go_back(progress);
    return;
  }
  if (roce::classify(syndrome) == roce::Syndrome::kNak) {
    fail_oldest(status_of(syndrome));
    return;
  }
  go_back(progress);
  progress->lost = 0;  // nothing was lost: the receiver was not ready
  if (!receiver_waits_ && not_ready_++ == 0) first_refusal_ = now;
  receiver_waits_ = true;
  probe_ = false;
  last_answer_ = now;
  probes_ = 0;
  deadline_ = now + roce::rnr_delay(syndrome);
}

SendProgress RcRequester::on_read_response(const roce::Packet& response, const MemoryTable& memory,
                                           Instant now) {
  SendProgress progress;
  const uint64_t psn = expand_psn(unacknowledged_, response.psn);
  if (psn < unacknowledged_ || psn >= highest_) return progress;
  const bool complete = acknowledge_before(psn, now, &progress);
  if (!complete || psn != unacknowledged_) {  // one before it is missing
    if (!gone_back_) go_back(&progress);
    return progress;
  }
  if (oldest_ == end_of_requests() || !posted(oldest_).is_read()) return progress;
  const Posted& read = posted(oldest_);
  const WorkRequest& work_request = read.work_request;
  if (read.is_atomic() != (response.opcode == roce::Opcode::kAtomicAck)) return progress;
  const Bytes offset = bytes_before(read, psn);
  const Bytes length = bytes_before(read, psn + 1) - offset;
  const auto original =
      std::bit_cast<std::array<uint8_t, sizeof response.original>>(response.original);
  const auto payload = read.is_atomic() ? std::span<const uint8_t>(original) : response.payload;
  if (payload.size() != length) {
    fail_oldest(CompletionStatus::kLocalError);
    return progress;
  }
  uint8_t* place = const_cast<uint8_t*>(work_request.local) + offset;
  if (length > 0) {
    if (!memory.owner_may_write(work_request.local_key, place, length)) {
      fail(CompletionStatus::kMemoryGone);
      return progress;
    }
    ordered_copy(place, payload.data(), length);
  }
  advance_to(psn + 1, &progress);
  on_progress(now);
  return progress;
}

void RcRequester::on_progress(Instant now) {
  last_answer_ = now;
  probes_ = not_ready_ = 0;
  probe_ = gone_back_ = receiver_waits_ = false;
  deadline_ = now + rtt_.probe_timeout();
}

// Everything unacknowledged is sent again. At most one packet counts as lost: most of the others
// have arrived, and were dropped as out of order.
void RcRequester::go_back(SendProgress* progress) {
  progress->lost += std::min(in_flight_, config_.mtu);
  in_flight_ = 0;
  reading_.clear();
  pieces_.clear();
  next_ = unacknowledged_;
  cursor_ = oldest_;
  probe_mark_ = 0;
  gone_back_ = true;
  samples_.clear();
}

void RcRequester::revoke(const GoneMemory& gone) {
  for (uint64_t request = oldest_; request < end_of_requests(); ++request) {
    Posted& pending = posted(request);
    if (!gone.holds(pending.work_request) || pending.work_request.length == 0) continue;
    pending.revoked = true;
    if (pending.started || pending.over) continue;
    pending.over = true;
    pending.status = CompletionStatus::kMemoryGone;
  }
  advance_cursors();
}

void RcRequester::fail(CompletionStatus status) {
  if (failure_ == CompletionStatus::kOk) failure_ = status;
}

// The oldest request caused the failure; all before it are done.
void RcRequester::fail_oldest(CompletionStatus status) {
  fail(status);
  if (oldest_ == end_of_requests()) return;
  posted(oldest_).status = status;
  cursor_ = std::max(cursor_, ++oldest_);
}

bool RcRequester::pop_completed(WorkRequest* work_request, CompletionStatus* status) {
  if (!has_completed()) return false;
  *work_request = requests_.front().work_request;
  *status = requests_.front().status;
  requests_.pop_front();
  ++first_request_;
  return true;
}

uint64_t RcRequester::done() const {
  uint64_t request = first_request_;
  while (request < oldest_ && posted(request).status == CompletionStatus::kOk) ++request;
  return request;
}

SendTimeout RcRequester::on_timeout(Instant now, SendProgress* progress) {
  if (idle() || failure_ != CompletionStatus::kOk || now < deadline_) return SendTimeout::kNotYet;
  const Duration own = own_silence(deadline_, now);
  last_answer_ = last_answer_ + own;
  first_refusal_ = first_refusal_ + own;
  if (not_ready_ > config_.sending.not_ready_retries &&
      now - first_refusal_ >= config_.sending.not_ready_limit) {
    failure_ = CompletionStatus::kReceiverNotReady;
  } else if (probes_ >= kTimeoutsInVain && now - last_answer_ >= config_.sending.silence_limit) {
    failure_ = CompletionStatus::kRetryExceeded;
  }
  if (failure_ != CompletionStatus::kOk) return SendTimeout::kPeerDead;
  if (receiver_waits_) {
    receiver_waits_ = false;
    deadline_ = now + rtt_.timeout();
    return SendTimeout::kRepair;
  }
  // A read is requested again as a whole; otherwise one packet is enough as a probe.
  if (posted(oldest_).is_read()) go_back(progress);
  probe_ = true;
  paths_.on_feedback(path_, {.event = PathEvent::kLost, .rtt = {}, .now = now});
  progress->timed_out = probes_ > 0;
  deadline_ = now + std::min(rtt_.timeout() * (int64_t{1} << probes_), config_.loss.max_timeout);
  probes_ = std::min(probes_ + 1, kTimeoutsInVain);
  return SendTimeout::kRepair;
}

}  // namespace pacecar
