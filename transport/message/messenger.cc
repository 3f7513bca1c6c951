#include "transport/message/messenger.h"

#include <algorithm>
#include <span>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

constexpr Duration kHousekeeping = Duration::from_ms(5);
// Memory that peers write is polled after an eighth of the time since its last change, within these
// bounds, if writes without immediate do not wake the engine.
constexpr Duration kFirstLook = Duration::from_us(20);
constexpr Duration kLastLook = Duration::from_ms(1);

}  // namespace

Result<std::unique_ptr<Messenger>> Messenger::create(Nic& nic, const MessengerConfig& config,
                                                     Instant now) {
  PACECAR_CHECK(config.max_connections <= kMaxConnections);
  PACECAR_CHECK(config.line_rate.bps() > 0);
  PACECAR_CHECK(config.eager <= std::min<Bytes>(kMaxEager, nic.caps().write_bytes / 2));
  ASSIGN_OR_RETURN(auto congestion_control, RateControl::make(nic, config));
  auto messenger =
      std::unique_ptr<Messenger>(new Messenger(nic, config, std::move(congestion_control), now));
  RETURN_IF_ERROR(messenger->control_.register_memory());
  return messenger;
}

Messenger::Messenger(Nic& nic, const MessengerConfig& config, CongestionControl congestion_control,
                     Instant now)
    : nic_(nic),
      config_(config),
      now_(now),
      control_(nic),
      rates_(nic, config_, control_, std::move(congestion_control)),
      flows_(nic, config_, control_, rates_),
      sends_(nic, config_, now_, counters_, control_, rates_, flows_),
      receives_(nic, config_, now_, counters_, control_, rates_, flows_),
      next_housekeeping_(now) {}

// While the tables are there: NICs read and write them until they have no more to do.
Messenger::~Messenger() {
  flows_.stop();
  control_.deregister_memory();
}

// --- connections ---

Result<Messenger::Offered> Messenger::open_send(const NicIdentity& peer, Instant now,
                                                uint32_t weight, Role role) {
  poll_completions(now);  // a flow that has broken is not shared
  return sends_.open(peer, now, weight, role);
}

Result<Messenger::Answered> Messenger::open_receive(std::span<const uint8_t> offer, Instant now) {
  poll_completions(now);  // a flow that has broken is not shared
  look_ = true;           // the peer may have written already
  return receives_.open(offer, now);
}

bool Messenger::suspect_flow(ConnectionId sender, ErrorCode failure, Instant now) {
  poll_completions(now);
  return sends_.suspect_flow(sender, failure);
}

void Messenger::forget_memory(uint32_t key) {
  sends_.forget_memory(key);
  receives_.forget_memory(key, now_);
}

void Messenger::break_flow(MessageFlow& flow, Instant now) {
  if (flow.sending) {
    sends_.break_flow(flow, MessageFailure::kPeerSilent);
  } else {
    receives_.break_flow(flow, MessageFailure::kPeerSilent, now);
  }
}

// Polls first: what the peer knows as acknowledged must be counted here.
void Messenger::break_now(FlowId id) {
  MessageFlow& flow = flows_.all()[id];
  if (flow.state == FlowState::kBroken) return;
  nic_.halt_queue_pair(flow.data);
  poll_completions(now_);
  if (flow.state != FlowState::kBroken) break_flow(flow, now_);
}

// --- poll ---

void Messenger::poll(Instant now) {
  now_ = now;
  poll_completions(now);
  rates_.poll_signals(flows_.all(), now);
  rates_.poll_arrivals(flows_.all(), now);
  if (!nic_.caps().silent_writes_wake) note_waiting(now);
  if (memory_changed()) {
    poll_words(now);
    if (sends_.match(now)) last_change_ = now;
  }
  rates_.decide_pending(flows_.all(), now);
  sends_.post();
  rates_.decide_pending(flows_.all(), now);
}

bool Messenger::finish_receives(Instant now) {
  now_ = now;
  const uint64_t before = counters_.messages_received;
  poll_completions(now);
  return counters_.messages_received != before;
}

void Messenger::post_submitted_sends(Instant now) {
  now_ = now;
  if (sends_.match(now)) last_change_ = now;
  if (sends_.post() > nic_.caps().mtu) rates_.decide_pending(flows_.all(), now);
}

void Messenger::post_control_writes(Instant now) {
  rates_.poll_changed(flows_.all(), now);
  receives_.advertise(sends_.data_posted_to(), now);
  rates_.poll_grants(now);
  control_.post_pending(flows_.all(), now);
  if (now >= next_housekeeping_ && housekeeping_due()) do_housekeeping(now);
}

// Memory that peers write must be polled, unless the NIC counts silent writes and has counted none.
bool Messenger::memory_changed() {
  const uint64_t count = nic_.counters().silent_packets_received;
  const bool due = sends_.take_match_due() || look_;
  const bool changed = due || count != silent_packets_seen_ || !nic_.caps().counts_silent_packets;
  silent_packets_seen_ = count;
  look_ = false;
  return changed;
}

// Notes whether a peer's write without immediate is awaited: it causes no completion.
void Messenger::note_waiting(Instant now) {
  const bool awaiting = sends_.waiting() || std::ranges::any_of(flows_.ids(), [this](FlowId id) {
                          return flows_.all()[id].writes > 0;
                        });
  if (awaiting && !awaiting_) last_change_ = now;
  awaiting_ = awaiting;
}

Instant Messenger::next_deadline() const {
  if (sends_.more_to_post()) return Instant();
  Instant next = std::min(rates_.next_deadline(), receives_.next_advertising());
  if (awaiting_) {
    const Duration quiet = (now_ - last_change_) / 8;
    next = std::min(next, now_ + std::clamp(quiet, kFirstLook, kLastLook));
  }
  return housekeeping_due() ? std::min(next_housekeeping_, next) : next;
}

void Messenger::poll_words(Instant now) {
  for (const FlowId id : flows_.ids()) {
    const auto word = control_.new_word(id);
    if (!word) continue;
    MessageFlow& flow = flows_.all()[id];
    if (flow.state != FlowState::kOpen) continue;
    control_.take_word(id, *word);
    last_change_ = now;
    rates_.on_word(flow, *word, now);
  }
}

// --- completions ---

void Messenger::poll_completions(Instant now) {
  size_t count = 0;
  do {
    count = nic_.poll(completions_);
    for (const Completion& completion : std::span(completions_).first(count)) {
      switch (completion.kind) {
        case CompletionKind::kSent: on_sent(completion, now); break;
        case CompletionKind::kReceived: on_received(completion, now); break;
        case CompletionKind::kBroken: on_broken(completion, now); break;
        case CompletionKind::kReceivedSend:  // only where receive requests were posted
          break;
      }
    }
  } while (count == completions_.size());
}

void Messenger::on_sent(const Completion& completion, Instant now) {
  const WorkId id = WorkId::unpack(completion.work_request);
  const bool ok = completion.status == CompletionStatus::kOk;
  switch (id.kind) {
    case WorkId::Kind::kData: sends_.on_write_done(id.owner, id.number, completion.status); break;
    case WorkId::Kind::kSlots: receives_.on_slots_written(id.owner, ok, now); break;
    case WorkId::Kind::kWord: control_.on_word_done(flows_.all()[id.owner]); break;
    case WorkId::Kind::kClose:
      id.number == 0 ? sends_.on_close_sent(id.owner, ok) : receives_.on_close_sent(id.owner, ok);
      break;
    case WorkId::Kind::kWant: break;
    case WorkId::Kind::kNote:
      id.number == 0 ? sends_.on_note_done(id.owner, ok) : receives_.on_note_done(id.owner, ok);
      break;
  }
}

void Messenger::on_received(const Completion& completion, Instant now) {
  const MessageFlow* flow = flows_.of(completion.queue_pair);
  if (flow != nullptr && !flow->sending && flow->data == completion.queue_pair) {
    receives_.on_write(*flow, Immediate::unpack(completion.immediate), completion.bytes, now);
  } else {
    ++counters_.protocol_errors;
  }
}

void Messenger::on_broken(const Completion& completion, Instant now) {
  MessageFlow* flow = flows_.of(completion.queue_pair);
  if (flow == nullptr) return;
  flow->fault = nic_.fault(completion.queue_pair);
  break_flow(*flow, now);
}

// --- housekeeping: releases connections and flows that have ended, and detects dead peers ---

bool Messenger::housekeeping_due() const {
  return sends_.housekeeping_due() || receives_.housekeeping_due() || flows_.housekeeping_due();
}

void Messenger::do_housekeeping(Instant now) {
  next_housekeeping_ = now + kHousekeeping;
  flows_.begin_housekeeping();
  sends_.do_housekeeping(now);
  receives_.do_housekeeping(now);
  watch_peers(now);
  flows_.do_housekeeping(now);
}

void Messenger::watch_peers(Instant now) {
  for (const FlowId id : flows_.ids()) {
    MessageFlow& flow = flows_.all()[id];
    if (!flow.active || flow.state != FlowState::kOpen) continue;
    const PeerWatch::Finding finding = flow.watch.poll(now);
    if (finding == PeerWatch::Finding::kAsk && flow.words_outstanding == 0) {
      control_.post_word(flow, now);
    } else if (finding == PeerWatch::Finding::kEnded) {
      flow.fault = "its process has ended: look for the first error there";
      break_now(id);
    }
  }
}

}  // namespace pacecar
