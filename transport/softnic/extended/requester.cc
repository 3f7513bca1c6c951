#include "transport/softnic/extended/requester.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "transport/base/seq.h"

namespace pacecar {
namespace {

// The last packet of a write of at least this size requests an acknowledgement even if other writes
// follow: the application waits for the acknowledgement to reuse its memory.
constexpr Bytes kLargeWriteBytes = 32 * 1024;

}  // namespace

Requester::Requester(const Config& config)
    : config_(config),
      mtu_(config.mtu),
      least_payload_(mtu_.least_payload()),
      window_(config.window_packets, config.first_psn),
      paths_(config.path_policy, config.paths, config.path_seed, config.delay_floor),
      requests_(config.work_requests),
      rtt_(config.loss) {}

Bytes Requester::work_request_bytes(uint32_t work_requests) {
  return std::bit_ceil(work_requests) * sizeof(Posted);
}

size_t Requester::post(std::span<const WorkRequest> work_requests) {
  size_t accepted = 0;
  for (const WorkRequest& work_request : work_requests) {
    if (requests_.full()) break;
    Posted posted{.work_request = work_request};
    divide(posted);
    if (work_request.opcode == Opcode::kWriteWithImm) posted.msn = next_msn_++;
    requests_.push(posted);
    ++accepted;
  }
  return accepted;
}

// Into packets, of which none has been sent.
inline void Requester::divide(Posted& posted) const {
  const Bytes length = posted.work_request.length;
  const Bytes payload = mtu_.begun_payload();
  const bool one = length <= payload;  // small writes are frequent: avoid the division
  posted.payload = static_cast<uint32_t>(payload);
  posted.packets = one ? 1 : static_cast<uint32_t>((length + payload - 1) / payload);
}

void Requester::on_answer(Bytes size, bool joined, Instant now) {
  const Bytes before = mtu_.begun_payload();
  mtu_.on_answer(size, joined, now);
  if (mtu_.begun_payload() != before) divide_unsent();
}

void Requester::divide_unsent() {
  for (size_t i = next_request_ - first_request_; i < requests_.size(); ++i) {
    Posted& posted = requests_[i];
    if (posted.sent == 0 && posted.status == CompletionStatus::kOk) divide(posted);
  }
}

PathMtu::Questions Requester::ask(Instant now) {
  const Bytes before = mtu_.begun_payload();
  const PathMtu::Questions questions = mtu_.ask(now, rtt_.probe_timeout());
  if (mtu_.begun_payload() != before) divide_unsent();
  return questions;
}

void Requester::fill(const Posted& posted, const SendWindow::Packet& packet, uint64_t psn,
                     Instant now, Outgoing* out) const {
  const WorkRequest& work_request = posted.work_request;
  const bool with_imm = work_request.opcode == Opcode::kWriteWithImm;
  const bool taken_back = posted.status != CompletionStatus::kOk;
  const Bytes offset = Bytes{packet.index} * posted.payload;
  out->header = wire::DataHeader{
      .opcode = with_imm ? wire::Opcode::kWriteWithImm : wire::Opcode::kWrite,
      .taken_back = taken_back,
      .destination_qp = config_.peer_queue_pair,
      .psn = static_cast<uint32_t>(psn & kPsnMask),
      .address = work_request.remote + offset,
      .key = work_request.remote_key,
      .length = static_cast<uint32_t>(work_request.length),
      .immediate = with_imm ? work_request.immediate : 0,
      .msn = posted.msn & kPsnMask,
      .timestamp = static_cast<uint32_t>(now.ns()),
  };
  out->payload = taken_back ? std::span<const uint8_t>()
                            : std::span(work_request.local + offset, packet.bytes);
}

Bytes Requester::next_bytes() {
  uint64_t psn = 0;
  SendWindow::Packet packet;
  if (window_.next_lost(&psn, &packet)) return packet.bytes;
  if (probe_ || !unsent() || window_.full()) return 0;
  const Posted& next = posted(next_request_);
  return std::min<Bytes>(next.payload, next.work_request.length - Bytes{next.sent} * next.payload);
}

bool Requester::next_passes() {
  if (probe_ || window_.has_lost() || !unsent() || window_.full()) return false;
  const Posted& next = posted(next_request_);
  return next.work_request.passing && next.packets == 1 && next.status == CompletionStatus::kOk;
}

bool Requester::next_packet(Instant now, Outgoing* out) {
  uint64_t psn = 0;
  SendWindow::Packet packet;
  const bool probing = std::exchange(probe_, false);
  if (window_.next_lost(&psn, &packet)) {
    window_.resend(psn, path_, now);
    fill(posted(packet.request), packet, psn, now, out);
    out->retransmission = true;
    on_sent(now);
    return true;
  }
  if (probing) {
    ask(now, out);
    return true;
  }
  if (!unsent() || window_.full()) return false;
  Posted& next = posted(next_request_);
  const Bytes offset = Bytes{next.sent} * next.payload;
  packet.request = next_request_;
  packet.index = next.sent;
  packet.bytes =
      static_cast<uint32_t>(std::min<Bytes>(next.payload, next.work_request.length - offset));
  if (window_.empty()) begin_activity(now);
  psn = window_.send(packet, path_, now);
  fill(next, packet, psn, now, out);
  out->retransmission = false;
  if (++next.sent == next.packets) {
    ++next_request_;
    const WorkRequest& ended = next.work_request;
    awaits_ |= ended.awaited;
    out->header.ack_request = awaits_ && (ended.length >= kLargeWriteBytes || !unsent());
    awaits_ &= !out->header.ack_request;
  }
  on_sent(now);
  return true;
}

uint32_t Requester::next_run(Instant now, uint32_t most, Outgoing* first) {
  if (probe_ || window_.has_lost() || !unsent() || window_.full()) return 0;
  Posted& next = posted(next_request_);
  if (next.payload > mtu_.payload()) return 0;
  const auto room = static_cast<uint32_t>(window_.room());
  const uint32_t count = std::min({most, next.packets - next.sent - 1, room - 1});
  if (count < 2) return 0;
  const SendWindow::Packet packet{
      .request = next_request_, .index = next.sent, .bytes = next.payload};
  if (window_.empty()) begin_activity(now);
  const uint64_t psn = window_.send_run(packet, count, path_, now);
  fill(next, packet, psn, now, first);
  first->retransmission = false;
  next.sent += count;
  on_sent(now);
  return count;
}

void Requester::begin_activity(Instant now) {
  last_received_ = last_acknowledged_ = now;
  probes_ = 0;
  deadline_ = Instant::never();
}

// Makes the probe. The peer may only be late, so no data is retransmitted. Instead, the packet
// before the oldest in flight, which the peer has, is sent as taken back: that only makes the peer
// acknowledge the packets it has received.
void Requester::ask(Instant now, Outgoing* out) const {
  out->header = wire::DataHeader{
      .ack_request = true,
      .taken_back = true,
      .destination_qp = config_.peer_queue_pair,
      .psn = static_cast<uint32_t>((window_.unacknowledged() - 1) & kPsnMask),
      .timestamp = static_cast<uint32_t>(now.ns()),
  };
  out->payload = {};
  out->retransmission = false;
}

void Requester::on_sent(Instant now) {
  if (deadline_ == Instant::never())
    deadline_ = next_timeout(now);  // else the oldest packet's deadline stays
}

// With packet timeouts counted from the sending of the oldest packet in flight, otherwise from now.
Instant Requester::next_timeout(Instant now) {
  if (!packet_timeouts()) return now + rtt_.probe_timeout();
  const Instant oldest = window_.oldest_sending();
  return oldest == Instant::never() ? oldest : oldest + config_.loss.packet_timeout;
}

SendProgress Requester::on_ack(const wire::AckHeader& ack, const wire::Bitmap& bitmap,
                               Instant arrival, Instant now) {
  SendProgress progress;
  const uint64_t base = window_.unacknowledged();
  const uint64_t cumulative = expand_psn(base, ack.cumulative);
  if (cumulative > window_.next()) return progress;  // acknowledges packets that were never sent
  probe_ = false;
  // The echoed packet is reported to the paths first, with its round trip, and not again.
  uint64_t echoed = window_.next();
  const auto elapsed = static_cast<uint32_t>(arrival.ns()) - ack.echo_timestamp;
  if (ack.echo_valid) {
    if (elapsed > ack.hold_ns) progress.rtt = Duration::from_ns(elapsed - ack.hold_ns);
    echoed = expand_psn(base, ack.echo_psn);
    if (paths_.learns()) learn_path(ack, echoed, progress.rtt, now);
  }
  const auto acknowledge = [&](uint64_t psn) {
    if (this->acknowledge(psn, &progress) && psn != echoed && paths_.counts()) {
      count_arrival(psn, now);
    }
  };
  if (!paths_.counts()) acknowledge_oldest(cumulative, &progress);
  for (uint64_t psn = window_.unacknowledged(); psn < cumulative; ++psn) acknowledge(psn);
  for (size_t word = 0; word < bitmap.words(); ++word) {
    for (uint64_t bits = bitmap[word]; bits != 0; bits &= bits - 1) {
      acknowledge(cumulative + word * 64 + static_cast<uint64_t>(__builtin_ctzll(bits)));
    }
  }
  window_.advance();
  if (progress.acked > 0) last_acknowledged_ = now;
  last_received_ = now;
  probes_ = 0;

  const auto new_marks = static_cast<int32_t>(ack.marked - marked_seen_);
  if (new_marks > 0) {
    marked_seen_ = ack.marked;
    progress.marked =
        std::min<Bytes>(static_cast<uint32_t>(new_marks) * config_.mtu.payload, progress.acked);
  }
  deadline_ = next_timeout(now);
  if (!ack.echo_valid) return progress;
  const Instant echo_sent = arrival - Duration::from_ns(elapsed);
  rtt_.add(now - echo_sent);  // the timeout includes the time in both hosts
  if (window_.oldest_sending() < echo_sent) {
    on_overtaken(echo_sent, now, &progress);
    // A single loss that only a probe has revealed is not a sign of congestion.
    if (echoed < base) progress.lost -= std::min(progress.lost, config_.mtu.payload);
  }
  return progress;
}

// The oldest packets in flight were sent before one that has arrived. If they do not count as lost
// yet, they may still arrive for a while. Perhaps no later packet is in flight whose
// acknowledgement would reveal their loss, so the timer must fire then.
void Requester::on_overtaken(Instant echo_sent, Instant now, SendProgress* progress) {
  if (config_.loss.reordering == Duration::max()) return;
  const Duration reordering = rtt_.reordering();
  declare_lost_before(echo_sent - reordering, now, progress);
  const Instant oldest = window_.oldest_sending();
  if (packet_timeouts() || oldest >= echo_sent) return;
  deadline_ = std::min(deadline_, std::max(now, oldest + (now - echo_sent) + reordering));
}

void Requester::learn_path(const wire::AckHeader& ack, uint64_t psn, Duration rtt, Instant now) {
  const auto path = window_.path_of(psn, ack.echo_timestamp);
  if (!path) return;
  const PathEvent event = ack.echo_marked ? PathEvent::kMarked : PathEvent::kGood;
  paths_.on_feedback(*path, {.event = event, .rtt = rtt, .now = now, .sent = window_.sent_at(psn)});
}

void Requester::declare_lost_before(Instant limit, Instant now, SendProgress* progress) {
  while (const auto loss = window_.lose_oldest_before(limit)) {
    progress->lost += loss->bytes;
    if (loss->bytes > least_payload_) mtu_.on_lost(now);
    paths_.on_feedback(loss->path, {.event = PathEvent::kLost, .rtt = {}, .now = now});
  }
}

bool Requester::acknowledge(uint64_t psn, SendProgress* progress) {
  SendWindow::Packet packet;
  if (!window_.acknowledge(psn, &packet)) return false;
  progress->acked += packet.bytes;
  if (packet.bytes > least_payload_) mtu_.on_acknowledged();
  ++posted(packet.request).acknowledged;
  return true;
}

// Acknowledges the oldest packets as long as several can be processed together.
void Requester::acknowledge_oldest(uint64_t end, SendProgress* progress) {
  while (window_.unacknowledged() < end) {
    const SendWindow::Acknowledged taken = window_.acknowledge_oldest(end);
    if (taken.packets == 0) return;
    progress->acked += taken.bytes;
    if (taken.bytes > taken.packets * least_payload_) mtu_.on_acknowledged();
    posted(taken.request).acknowledged += taken.packets;
  }
}

void Requester::count_arrival(uint64_t psn, Instant now) {
  paths_.on_feedback(
      window_.path_at(psn),
      {.event = PathEvent::kArrived, .rtt = {}, .now = now, .sent = window_.sent_at(psn)});
}

SendProgress Requester::on_nak(const wire::Nak& nak, Instant arrival, Instant now) {
  SendProgress progress;
  last_received_ = now;
  const uint64_t psn = expand_psn(window_.unacknowledged(), nak.psn);
  if (nak.syndrome == wire::Syndrome::kTrimmed) {
    if (const auto loss = window_.lose_sending(psn, nak.echo_timestamp)) {
      const auto elapsed = static_cast<uint32_t>(arrival.ns()) - nak.echo_timestamp;
      progress.trimmed = loss->bytes;
      progress.trimmed_rtt = Duration::from_ns(elapsed);
      paths_.on_feedback(loss->path, {.event = PathEvent::kTrimmed, .rtt = {}, .now = now});
    }
    return progress;
  }
  SendWindow::Packet packet;
  if (window_.refuse(psn, &packet)) {
    take_back(posted(packet.request), CompletionStatus::kRemoteAccessError);
  }
  return progress;
}

void Requester::revoke(const GoneMemory& gone) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    Posted& posted = requests_[i];
    const bool incomplete = posted.acknowledged < posted.packets;
    if (!gone.holds(posted.work_request) || !incomplete) continue;
    take_back(posted, CompletionStatus::kMemoryGone);
  }
}

// One unsent packet remains, so that the peer is notified even if it has all the others.
void Requester::take_back(Posted& posted, CompletionStatus status) {
  if (posted.status != CompletionStatus::kOk) return;
  posted.status = status;
  posted.packets = std::min(posted.packets, posted.sent + 1);
}

bool Requester::pop_completed(WorkRequest* work_request, CompletionStatus* status) {
  if (requests_.empty()) return false;
  const Posted& front = requests_.front();
  if (front.acknowledged < front.packets) return false;
  *work_request = front.work_request;
  *status = front.status;
  requests_.pop_front();
  ++first_request_;
  return true;
}

SendTimeout Requester::on_timeout(Instant now, SendProgress* progress) {
  if (window_.empty() || now < deadline_) return SendTimeout::kNotYet;
  const Duration own = own_silence(deadline_, now);
  last_received_ = last_received_ + own;
  last_acknowledged_ = last_acknowledged_ + own;
  const bool asked = packet_timeouts() || probes_ >= kTimeoutsInVain;
  if ((asked || peer_answers()) && now - last_acknowledged_ >= config_.silence_limit) {
    return SendTimeout::kPeerDead;
  }
  if (packet_timeouts()) {
    const Instant limit = now - config_.loss.packet_timeout + Duration::from_ns(1);
    declare_lost_before(limit, now, progress);
    deadline_ = next_timeout(now);
    return SendTimeout::kRepair;
  }
  const Instant silent_until = last_received_ + rtt_.probe_timeout();
  const bool overtaken = probes_ == 0 && now < silent_until;
  if (overtaken && window_.newest_sending() - window_.oldest_sending() >= rtt_.reordering()) {
    deadline_ = silent_until;  // acknowledgements of packets in flight will reveal losses
    return SendTimeout::kNotYet;
  }
  probe_ = true;
  // The path may be the cause: another one is tried.
  if (!overtaken) paths_.on_feedback(path_, {.event = PathEvent::kLost, .rtt = {}, .now = now});
  progress->timed_out = probes_ > 0 && now - last_received_ >= rtt_.timeout();
  deadline_ =
      now + std::min(rtt_.probe_timeout() * (int64_t{1} << probes_), config_.loss.max_timeout);
  probes_ = std::min(probes_ + 1, kTimeoutsInVain);
  return SendTimeout::kRepair;
}

}  // namespace pacecar
