// What Messenger does at every poll.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "cc/grant_word.h"
#include "transport/base/prefetch.h"
#include "transport/message/flow.h"
#include "transport/message/flow_limits.h"
#include "transport/message/messenger.h"

namespace pacecar {
namespace {

// Writes that one connection posts before the next connection's turn.
constexpr int kWritesPerTurn = 8;
// How long a posted buffer may wait to be advertised while the peer has others.
constexpr Duration kAdvertiseDelay = Duration::from_ms(1);
// How much earlier it is advertised if the same poll posts data to that peer.
constexpr Duration kInPassing = Duration::from_us(400);
// Most outstanding words of a flow. While there is no room, only the newest word is kept. 800 Gb/s
// and 8 us take 50, each with credit for four packets.
constexpr uint32_t kMaxWords = 56;

// Duration of one write at the flow's rate, where the NIC paces whole writes: few writes at high
// rates, and short waits for other flows at low ones.
constexpr Duration kWriteTime = Duration::from_ms(1);
// Where writes without immediate do not wake the engine, memory that peers write is polled after an
// eighth of the time since its last change, within these bounds.
constexpr Duration kFirstLook = Duration::from_us(20);
constexpr Duration kLastLook = Duration::from_ms(1);

}  // namespace

void Messenger::poll(Instant now) {
  now_ = now;
  poll_completions(now);
  poll_signals(now);
  poll_arrivals(now);
  if (!nic_.caps().silent_writes_wake) note_waiting(now);
  if (memory_changed()) {
    poll_flow_words(now);
    poll_matching(now);
  }
  settle(now);
  poll_posting();
  settle(now);
}

bool Messenger::finish_receives(Instant now) {
  now_ = now;
  const uint64_t before = counters_.messages_received;
  poll_completions(now);
  return counters_.messages_received != before;
}

void Messenger::hurry_sends(Instant now) {
  now_ = now;
  poll_matching(now);
  if (poll_posting() > nic_.caps().mtu) settle(now);
}

void Messenger::inform(Instant now) {
  poll_changed(now);
  poll_advertising(now);
  poll_grants(now);
  for (size_t left = word_pending_.size(); left > 0; --left)
    post_word(flows_[word_pending_.take()], now);
  if (housekeeping_due_ && now >= next_housekeeping_) do_housekeeping(now);
}

void Messenger::prepare() const {
  const auto* begin = reinterpret_cast<const char*>(this);
  prefetch(begin, static_cast<size_t>(reinterpret_cast<const char*>(&completions_[1]) - begin));
  prefetch(signals_.front());
}

// Whether memory that peers write must be polled: always, unless the NIC counts writes without
// immediate and has counted none.
bool Messenger::memory_changed() {
  const uint64_t count = nic_.counters().silent_packets_received;
  const bool changed = look_ || count != silent_packets_seen_ || !nic_.caps().counts_silent_packets;
  silent_packets_seen_ = count;
  look_ = false;
  return changed;
}

// Notes whether a peer's write without immediate is awaited: it causes no completion.
void Messenger::note_waiting(Instant now) {
  const bool awaiting = !matching_.empty() || std::ranges::any_of(open_flows_, [this](FlowId id) {
    return flows_[id].writes > 0;
  });
  if (awaiting && !awaiting_) last_change_ = now;
  awaiting_ = awaiting;
}

Instant Messenger::next_deadline() const {
  if (more_to_post_) return Instant();
  Instant next =
      std::min({allocator_->next_deadline(), controllers_->next_deadline(), next_advertising_});
  if (awaiting_) {
    const Duration quiet = (now_ - last_change_) / 8;
    next = std::min(next, now_ + std::clamp(quiet, kFirstLook, kLastLook));
  }
  return housekeeping_due_ ? std::min(next_housekeeping_, next) : next;
}

void Messenger::poll_signals(Instant now) {
  size_t count = 0;
  do {
    count = nic_.poll_signals(signals_);
    for (const FlowSignal& signal : std::span(signals_).first(count)) {
      Flow* flow = flows_.find(signal.flow);
      if (flow == nullptr || flow->controller == nullptr) continue;
      on_signal(*flow, signal, now);
    }
  } while (count == signals_.size());
}

void Messenger::poll_arrivals(Instant now) {
  size_t count = 0;
  do {
    count = nic_.poll_arrivals(arrivals_);
    for (const FlowArrival& arrival : std::span(arrivals_).first(count)) {
      const Flow* flow = flows_.find(arrival.flow);
      if (flow == nullptr || flow->sending) continue;
      if (flow->obeys) {
        allocator_->on_arrival(now, arrival.flow, arrival.bytes,
                               {arrival.transit_ns, arrival.timed_bytes});
      } else {
        allocator_->on_foreign_arrival(now, arrival.bytes);
      }
    }
  } while (count == arrivals_.size());
}

// One flow's change may change others' limits. After two rounds the rest waits for the next poll,
// unless a round has filled `changed_`.
void Messenger::poll_changed(Instant now) {
  size_t count = changed_.size();
  for (int round = 0; count == changed_.size() || (round < 2 && count > 0); ++round) {
    count = controllers_->poll_changed(now, changed_);
    for (const uint32_t id : std::span(changed_).first(count)) {
      announce(flows_[id], now);
      decide(flows_[id], now);
    }
  }
}

void Messenger::on_signal(Flow& flow, const FlowSignal& signal, Instant now) {
  take_signal(*flow.controller, flow.stats, signal, now);
  if (signal.rtt.ns() != 0) flow.rtt = signal.rtt;
  last_flow_ = flow.id;
  settle_later(flow, true);
}

// Applies the controller's decision. settle() skips this for flows without a backlog.
void Messenger::decide(Flow& flow, Instant now) {
  put_in_force(nic_, flow.id, *flow.controller, flow.decision, now);
}

// Sends the controller's demand, if it has one.
void Messenger::announce(Flow& flow, Instant now) {
  if (flow.controller == nullptr) return;
  const auto demand = flow.controller->demand(now, flow.stats);
  if (demand) queue_word(flow, wire::encode_demand(*demand));
}

// The grant in force for a flow that sends to us. A flow that obeys another allocator, or none, is
// granted the line rate.
uint64_t Messenger::grant_word(const Flow& flow) const {
  if (flow.obeys) return wire::encode_grant(allocator_->grant(flow.id));
  return wire::encode_grant({.rate = config_.line_rate, .validity = Duration::from_s(10)});
}

// A word that equals the last one is not sent again.
void Messenger::queue_word(const Flow& flow, uint64_t word) {
  if (words_out_[flow.id] == word) return;
  words_out_[flow.id] = word;
  word_pending_.add(flow.id);
}

// Grants from receivers, demands from senders.
void Messenger::poll_flow_words(Instant now) {
  for (const FlowId id : open_flows_) {
    const uint64_t word = load_polled(words_in_[id]);
    if (word == words_seen_[id]) continue;
    Flow& flow = flows_[id];
    if (flow.state != Flow::State::kOpen) continue;
    words_seen_[id] = word;
    last_change_ = now;
    if (flow.sending) {
      on_grant(flow, word, now);
    } else if (flow.obeys) {
      allocator_->on_demand(now, id, wire::decode_demand(word));
    }
  }
}

void Messenger::on_grant(Flow& flow, uint64_t word, Instant now) {
  flow.controller->on_grant(now, wire::decode_grant(word));
  settle_later(flow, true);
}

void Messenger::settle_later(Flow& flow, bool decides) {
  flow.undecided |= decides;
  unsettled_.add(flow.id);
}

void Messenger::settle(Instant now) {
  while (!unsettled_.empty()) {
    Flow* flow = flows_.find(unsettled_.take());
    if (flow == nullptr) continue;
    announce(*flow, now);
    if (std::exchange(flow->undecided, false) && flow->stats.backlog > 0) decide(*flow, now);
  }
}

Bytes Messenger::write_bytes(const Flow& flow) const {
  const NicCaps& caps = nic_.caps();
  const Bytes bytes = flow.decision.rate.bytes_in(kWriteTime) / caps.mtu * caps.mtu;
  return caps.paces_packets ? caps.write_bytes : std::clamp(bytes, caps.mtu, caps.write_bytes);
}

void Messenger::poll_matching(Instant now) {
  for (size_t left = matching_.size(); left > 0; --left) {
    Sender& sender = senders_[matching_.take()];
    if (!sender.open || sender.held || sender.failure != MessageFailure::kNone) continue;
    Flow& flow = *sender.flow;
    uint64_t newest_grant = 0;
    const auto match =
        sender.queue.match(*sender.table, write_bytes(flow),
                           [&newest_grant](uint64_t grant) { newest_grant = grant; });
    if (newest_grant != 0) {
      last_change_ = now;
      on_grant(flow, newest_grant, now);
    }
    if (match == SendQueue::Match::kProtocolError) {
      ++counters_.protocol_errors;
      fail_connection(sender, MessageFailure::kPeerProtocol);
      continue;
    }
    posting_.add(sender.id);
    if (!sender.queue.waiting()) continue;
    matching_.add(sender.id);
    want_slots(sender);
  }
}

// Asks the receiver for slots if a send needs one: a receiver whose last message was small
// advertises late.
void Messenger::want_slots(Sender& sender) {
  const uint64_t wanted = sender.queue.wanted_slots();
  if (wanted <= sender.wanted) return;
  sender.table->own_wanted = wanted;
  const bool posted = post_control(
      *sender.flow,
      table_write({WorkId::Kind::kWant, sender.id, 0}, &sender.table->own_wanted, sizeof(uint64_t),
                  sender.table_region, sender.remote_table, offsetof(ReceiveTable, peer_wanted)));
  if (posted) {
    sender.wanted = wanted;
  } else {
    look_ = true;  // no room: again at the next poll
  }
}

Bytes Messenger::poll_posting() {
  data_posted_to_ = nullptr;
  more_to_post_ = false;
  Bytes most = 0;
  for (size_t left = posting_.size(); left > 0; --left) {
    Sender& sender = senders_[posting_.take()];
    if (!sender.held) most = std::max(most, post_writes(sender));
  }
  return most;
}

Bytes Messenger::post_writes(Sender& sender) {
  Flow& flow = *sender.flow;
  Bytes bytes = 0;
  WorkRequest write;
  int posted = 0;
  for (; sender.queue.next_write(sender.number, &write); ++posted) {
    write.id = WorkId{WorkId::Kind::kData, sender.id, static_cast<uint32_t>(write.id)}.pack();
    if (posted == kWritesPerTurn || nic_.post(flow.data, {&write, 1}) == 0) {
      more_to_post_ |= posted == kWritesPerTurn;  // else a completion makes room
      posting_.add(sender.id);
      break;
    }
    bytes += sender.queue.on_posted();
  }
  if (posted == 0) return 0;
  data_posted_to_ = &flow.peer;
  const bool begins = flow.stats.backlog == 0;
  flow.writes += static_cast<uint32_t>(posted);
  flow.stats.backlog += bytes;
  counters_.bytes_sent += bytes;
  settle_later(flow, begins);  // it may have been idle
  return bytes;
}

void Messenger::poll_advertising(Instant now) {
  next_advertising_ = Instant::never();
  for (size_t left = to_advertise_.size(); left > 0; --left) {
    Receiver& receiver = receivers_[to_advertise_.take()];
    const ReceiveQueue::Run run = receiver.queue.next_run();
    if (run.count == 0) {  // all are advertised, or the ring is full until the next message
      if (!receiver.queue.all_advertised()) to_advertise_.add(receiver.id);
      continue;
    }
    if (receiver.advertise_at == Instant::never()) receiver.advertise_at = now + kAdvertiseDelay;
    const bool passes = data_posted_to_ != nullptr && *data_posted_to_ == receiver.flow->peer;
    const Instant advertise_at =
        passes ? receiver.advertise_at - kInPassing : receiver.advertise_at;
    if (now < advertise_at && !receiver.queue.urgent(load_polled(receiver.table->peer_wanted))) {
      next_advertising_ = std::min(next_advertising_, receiver.advertise_at);
      to_advertise_.add(receiver.id);
      continue;
    }
    receiver.queue.write(run, grant_word(*receiver.flow), *receiver.table);
    WorkRequest write =
        table_write({WorkId::Kind::kSlots, receiver.id, 0}, &receiver.table->slots[run.first],
                    run.count * sizeof(CtsSlot), receiver.table_region, receiver.remote_table,
                    run.first * sizeof(CtsSlot));
    write.passing = true;
    const bool posted = post_control(*receiver.flow, write);
    if (posted) {
      receiver.queue.on_run_posted(run.count);
      ++receiver.slot_writes_outstanding;
      receiver.advertise_at = Instant::never();
    }
    if (!receiver.queue.all_advertised()) to_advertise_.add(receiver.id);
    // The ring wraps, or the queue pair is full.
    if (receiver.queue.next_run().count > 0) next_advertising_ = now;
    if (!posted) return;
  }
}

// Control writes are the ones without immediate: they are not counted as data.
void Messenger::report_counts(Instant now) {
  const NicCounters& counters = nic_.counters();
  allocator_->on_counts(
      now, {.packets = counters.data_packets_received - counters.silent_packets_received,
            .marked = counters.marked_packets,
            .trimmed = counters.trimmed_packets,
            .trimmed_in_core = counters.trimmed_in_core});
}

void Messenger::poll_grants(Instant now) {
  if (config_.oversubscription > 1) report_counts(now);
  size_t count = 0;
  do {
    count = allocator_->poll_grants(now, grants_);
    for (const GrantUpdate& update : std::span(grants_).first(count)) {
      queue_word(flows_[update.flow], wire::encode_grant(update.grant));
    }
  } while (count == grants_.size());
}

// The NIC reads the word when it sends the write and again when it retransmits it; an RDMA NIC that
// sends inline copies it here. Either way an older word never follows a newer one.
void Messenger::post_word(Flow& flow, Instant now) {
  if (flow.words_outstanding == kMaxWords || flow.state != Flow::State::kOpen) return;
  const bool posted =
      post_control(flow, {.id = WorkId{WorkId::Kind::kWord, flow.id, 0}.pack(),
                          .local = reinterpret_cast<const uint8_t*>(&words_out_[flow.id]),
                          .remote = flow.remote.words.address,
                          .length = sizeof(uint64_t),
                          .local_key = words_out_region_.key,
                          .remote_key = flow.remote.words.key,
                          .passing = true,
                          .host = true});
  if (!posted) return word_pending_.add(flow.id);  // no room: again at the next poll
  ++flow.words_outstanding;
  flow.word_posted = words_out_[flow.id];
  flow.last_word = now;
}

bool Messenger::post_control(Flow& flow, const WorkRequest& write) {
  return nic_.post(flow.control, {&write, 1}) == 1;
}

}  // namespace pacecar
