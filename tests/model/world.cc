#include "tests/model/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cc/grant_word.h"

namespace pacecar::model {
namespace {

constexpr Bytes kMtu = 4096;
constexpr int64_t kDataSteps = kWordSteps + 1;  // data leaves when its step is over
constexpr Duration kLeastSleep = Duration::from_ns(100);
// The world does not begin at time zero, which must have no meaning to the ends.
constexpr Instant kBegin = Instant::from_ns(1'000'000);

struct Fate {
  std::string_view name;
  int64_t late = 0;    // steps
  int64_t again = -1;  // steps from the packet to its copy; -1: no copy
};
constexpr int64_t kLost = -1;
constexpr std::array kFates{
    Fate{"on time"},
    Fate{"lost", kLost},
    Fate{"late by a step", 1},
    Fate{"late by a round trip", kStepsPerRoundTrip},
    Fate{"late by V", kValiditySteps + kStepsPerRoundTrip},
    Fate{"twice, a round trip apart", 0, kStepsPerRoundTrip},
    Fate{"twice, V apart", 0, kValiditySteps},
};
constexpr std::array kCtsFates{Fate{"on time"}, Fate{"late by a round trip", kStepsPerRoundTrip},
                               Fate{"late by V", kValiditySteps}};

FlowEnvironment environment() {
  return {.line_rate = kLine, .mtu = kMtu, .burst_bytes = 4 * kMtu, .base_rtt = kRoundTrip};
}

bool newer(uint16_t epoch, uint16_t than) {
  return static_cast<int16_t>(static_cast<uint16_t>(epoch - than)) > 0;
}

bool same(const Explanation& a, const Explanation& b) {
  return a.rate == b.rate && a.grant == b.grant && a.epoch == b.epoch && a.phase == b.phase;
}

}  // namespace

template <typename... Args>
void World::note(const Flow& flow, std::string_view format, Args&&... args) {
  if (!tracing_) return;
  trace_ += fmt::format("{:4} {}->{} {}\n", step_, flow.sender, flow.receiver,
                        fmt::format(fmt::runtime(format), args...));
}

World::World(const Scenario& scenario, Chooser& chooser, bool trace)
    : scenario_(scenario),
      chooser_(chooser),
      tracing_(trace),
      checks_(scenario),
      flows_(size_t{scenario.senders} * scenario.receivers),
      senders_(scenario.senders),
      receivers_(scenario.receivers),
      now_(kBegin) {
  for (Host& host : senders_) {
    host.senders =
        std::make_unique<PaceSenders>(environment(), PaceConstants{}, scenario.receivers);
  }
  for (Host& host : receivers_) {
    host.receiver = std::make_unique<PaceReceiver>(environment(), scenario.senders);
  }
  for (const Message& message : scenario.messages) {
    left_ += message.bytes;
    Flow& flow = flows_[index(message.sender, message.receiver)];
    if (flow.controller != nullptr) continue;
    flow.sender = message.sender;
    flow.receiver = message.receiver;
    flow.controller = &senders_[flow.sender].senders->add_flow(now_, flow.receiver);
    receivers_[flow.receiver].receiver->add_flow(now_, flow.sender);
  }
}

Result World::run() {
  while (left_ > 0 && !checks_.failed()) step();
  Result result = checks_.result();
  if (!result.failure.empty() && tracing_) trace_ += result.failure;
  return result;
}

void World::step() {
  now_ = kBegin + kStep * step_;
  if (step_ == scenario_.dies) remove_dead();
  deliver_words();
  deliver_data();
  deliver_acks();
  post_receives();
  poll_senders();
  for (uint32_t i = 0; i < receivers_.size(); ++i) poll_receiver(i);
  checks_.on_grants(step_);
  send_words();
  send_data();
  ++step_;
}

// The run does not wait for bytes that the dead sender has not sent.
void World::remove_dead() {
  checks_.on_fault(step_);
  for (const Message& message : scenario_.messages) {
    if (message.sender == scenario_.dead) left_ -= message.bytes;
  }
  for (Flow& flow : flows_) {
    if (dead(flow)) left_ += flow.stats.acked;
  }
}

// --- arrivals ---

void World::deliver_words() {
  std::vector<Word> due;
  std::erase_if(words_, [&](const Word& word) {
    if (word.due > step_) return false;
    due.push_back(word);
    return true;
  });
  for (const Word& word : due) {
    Flow& flow = flows_[word.flow];
    if (word.kind != WordKind::kDemand && dead(flow)) continue;
    note(word, "arrives");
    if (word.kind == WordKind::kCts) on_cts(flow, word);
    if (word.kind == WordKind::kGrant) on_grant(flow, word);
    if (word.kind == WordKind::kDemand) on_demand(flow, word);
  }
}

void World::on_grant(Flow& flow, const Word& word) {
  const Grant grant = wire::decode_grant(word.content);
  // A grant word replaces a grant that came with a CTS, whatever their epochs.
  const bool stale = flow.received[0] && !flow.cts_counts && !newer(grant.epoch, flow.newest[0]);
  const Explanation before = flow.controller->explain(now_);
  flow.controller->on_grant(now_, grant);
  const Explanation after = flow.controller->explain(now_);
  if (stale && !same(before, after)) {
    checks_.fail(step_,
                 fmt::format("a grant that is not newer takes effect: {:.3f} Gb/s, was {:.3f}",
                             after.grant.gbps(), before.grant.gbps()));
  }
  if (!stale) {
    flow.newest[0] = grant.epoch;
    if (after.epoch != grant.epoch) checks_.fail(step_, "the newest grant does not take effect");
  }
  flow.received[0] = true;
  flow.cts_counts &= after.epoch != grant.epoch;
  announce(flow);
  decide(flow);
}

// Its sender begins the message.
void World::on_cts(Flow& flow, const Word& word) {
  const Message& message = scenario_.messages[word.message];
  const Grant grant = wire::decode_grant(word.content);
  const Explanation before = flow.controller->explain(now_);
  flow.controller->on_grant(now_, grant);
  const Explanation after = flow.controller->explain(now_);
  const bool granted = flow.received[0] || flow.cts_counts;
  if (granted && !newer(grant.epoch, before.epoch) && !same(before, after)) {
    checks_.fail(step_, "a CTS that is not newer changes what a sender does");
  }
  flow.cts_counts |= after.epoch == grant.epoch && (!granted || before.epoch != after.epoch);
  announce(flow);
  if (flow.stats.backlog == 0) flow.busy_since = step_;
  flow.stats.backlog += message.bytes;
  flow.unsent += message.bytes;
  ++begun_;
  announce(flow);
  decide(flow);
}

void World::on_demand(Flow& flow, const Word& word) {
  const Demand demand = wire::decode_demand(word.content);
  PaceReceiver& receiver = *receivers_[flow.receiver].receiver;
  const bool stale = flow.received[1] && !newer(demand.epoch, flow.newest[1]);
  const auto stats = [&] {
    return std::tuple(receiver.active_flows(), receiver.next_deadline(),
                      receiver.grant(flow.sender).rate);
  };
  const auto before = stats();
  receiver.on_demand(now_, flow.sender, demand);
  if (stale && stats() != before) {
    checks_.fail(step_, "a demand that is not newer changes what a receiver does");
  }
  if (!stale) {
    flow.newest[1] = demand.epoch;
    flow.known = demand.wanted;
  }
  flow.received[1] = true;
}

void World::deliver_data() {
  for (uint32_t i = 0; i < receivers_.size(); ++i) {
    enqueue(i);
    serve(i);
  }
  std::erase_if(data_, [this](const Load& load) { return load.due <= step_; });
}

// Queues what arrived in the last step, as packets that are evenly spread over the step.
void World::enqueue(uint32_t receiver) {
  Host& host = receivers_[receiver];
  std::vector<Load> loads;
  Bytes total = 0;
  for (const Load& load : data_) {
    if (load.due > step_ || flows_[load.flow].receiver != receiver) continue;
    loads.push_back(load);
    total += load.bytes;
  }
  Bytes ahead = 0;  // of this step
  for (bool more = true; more;) {
    more = false;
    for (Load& load : loads) {
      if (load.bytes == 0) continue;
      Load packet = load;
      packet.bytes = std::min(load.bytes, kMtu);
      load.bytes -= packet.bytes;
      more |= load.bytes > 0;
      const Bytes drained = kLine.bytes_in(kStep) * ahead / total;  // since the step began
      const Bytes come = host.queued + ahead;
      packet.waited = kLine.time_for(come - std::min(drained, come));
      ahead += packet.bytes;
      host.queue.push_back(packet);
    }
  }
  host.queued += ahead;
}

void World::serve(uint32_t receiver) {
  Host& host = receivers_[receiver];
  Bytes room = kLine.bytes_in(kStep);
  while (room > 0 && !host.queue.empty()) {
    Load& packet = host.queue.front();
    const Bytes served = std::min(room, packet.bytes);
    room -= served;
    host.queued -= served;
    packet.bytes -= served;
    const Load done = packet;
    if (packet.bytes == 0) host.queue.pop_front();
    arrive(flows_[done.flow], served, done.waited);
  }
  checks_.on_queue(host.queued);
}

void World::arrive(Flow& flow, Bytes bytes, Duration waited) {
  PaceReceiver& receiver = *receivers_[flow.receiver].receiver;
  const auto transit = static_cast<uint32_t>((kRoundTrip / 2 + waited).ns());
  receiver.on_arrival(now_, flow.sender, bytes, {transit, kMtu});
  flow.arrived += bytes;
  while (!flow.expected.empty()) {
    const Bytes size = scenario_.messages[flow.expected.front()].bytes;
    if (flow.arrived < flow.finished + size) break;
    flow.finished += size;
    flow.expected.pop_front();
    receiver.on_finished(now_, flow.sender, size);
  }
  acks_.push_back({index(flow.sender, flow.receiver), bytes, step_ + kWordSteps, waited});
}

void World::deliver_acks() {
  if (silent() && scenario_.data_too) return;
  std::vector<bool> acked(flows_.size());
  for (; !acks_.empty() && acks_.front().due <= step_; acks_.pop_front()) {
    const Load& ack = acks_.front();
    Flow& flow = flows_[ack.flow];
    if (dead(flow)) continue;
    flow.stats.in_flight -= ack.bytes;
    flow.controller->on_ack(now_, {.rtt = kRoundTrip + ack.waited,
                                   .acked = ack.bytes,
                                   .in_flight = flow.stats.in_flight,
                                   .sent = flow.stats.sent});
    flow.stats.acked += ack.bytes;
    flow.stats.backlog -= ack.bytes;
    left_ -= ack.bytes;
    acked[ack.flow] = true;
  }
  for (size_t i = 0; i < flows_.size(); ++i) {
    if (!acked[i]) continue;
    announce(flows_[i]);
    decide(flows_[i]);
  }
}

// --- what hosts do by themselves ---

void World::post_receives() {
  for (uint32_t i = 0; i < scenario_.messages.size(); ++i) {
    const Message& message = scenario_.messages[i];
    if (message.posted != step_) continue;
    const uint32_t number = index(message.sender, message.receiver);
    PaceReceiver& receiver = *receivers_[message.receiver].receiver;
    receiver.on_posted(now_, message.sender, message.bytes);
    flows_[number].expected.push_back(i);
    send_word({.kind = WordKind::kCts,
               .flow = number,
               .content = wire::encode_grant(receiver.grant(message.sender)),
               .due = std::max(step_ + kWordSteps, message.ready),
               .message = i});
  }
}

void World::announce(Flow& flow) {
  const auto demand = flow.controller->demand(now_, flow.stats);
  if (demand) queue_word(flow, WordKind::kDemand, wire::encode_demand(*demand));
}

void World::decide(Flow& flow) {
  flow.decision = flow.controller->decide(now_);
  note(flow, "may send at {:.3f} Gb/s", flow.decision.rate.gbps());
}

void World::poll_senders() {
  for (uint32_t sender = 0; sender < senders_.size(); ++sender) {
    std::array<uint32_t, 2> changed{};
    size_t count = changed.size();
    // In the same batches as Messenger.
    for (int round = 0; count == changed.size() || (round < 2 && count > 0); ++round) {
      count = senders_[sender].senders->poll_changed(now_, changed);
      for (size_t i = 0; i < count; ++i) {
        Flow& flow = flows_[index(sender, changed[i])];
        if (dead(flow)) continue;
        announce(flow);
        decide(flow);
      }
    }
  }
}

// Polls at each of the receiver's deadlines before the next step.
void World::poll_receiver(uint32_t receiver) {
  PaceReceiver& allocator = *receivers_[receiver].receiver;
  std::array<GrantUpdate, 2> updates{};
  size_t count = 0;
  for (Instant at = now_; at < now_ + kStep;) {
    count = allocator.poll_grants(at, updates);
    for (const GrantUpdate& update : std::span(updates).first(count)) grant(receiver, update);
    if (count < updates.size()) at = std::max(at + kLeastSleep, allocator.next_deadline());
  }
}

void World::grant(uint32_t receiver, const GrantUpdate& update) {
  Flow& flow = flows_[index(update.flow, receiver)];
  note(flow, "is granted {:.3f} Gb/s", update.grant.rate.gbps());
  checks_.on_grant(step_, flow.sender, receiver, update.grant);
  queue_word(flow, WordKind::kGrant, wire::encode_grant(update.grant));
}

// --- departures ---

void World::queue_word(Flow& flow, WordKind kind, uint64_t content) {
  const auto which = static_cast<size_t>(kind);
  if (flow.newest_word[which] == content) return;
  flow.newest_word[which] = content;
  flow.pending[which] = true;
}

void World::send_words() {
  for (uint32_t i = 0; i < flows_.size(); ++i) {
    for (const WordKind kind : {WordKind::kGrant, WordKind::kDemand}) {
      const auto which = static_cast<size_t>(kind);
      if (!std::exchange(flows_[i].pending[which], false)) continue;
      send_word({kind, i, flows_[i].newest_word[which], step_ + kWordSteps});
    }
  }
}

void World::send_word(Word word) {
  checks_.on_word();
  const bool cts = word.kind == WordKind::kCts;
  if (silent()) {
    checks_.on_fault(scenario_.silent_until);
    note(word, "is lost: no word arrives");
    if (!cts) return;
    word.due = scenario_.silent_until + kWordSteps;  // repeated until it arrives
    words_.push_back(word);
    return;
  }
  const bool may_fail = step_ < scenario_.faults_until;
  const auto options = static_cast<uint32_t>(cts ? kCtsFates.size() : kFates.size());
  const uint32_t chosen = may_fail ? chooser_.fault(options) : 0;
  const Fate& fate = cts ? kCtsFates[chosen] : kFates[chosen];
  note(word, fate.name);
  if (chosen > 0) checks_.on_fault(word.due + std::max(fate.late, fate.again));
  if (fate.late == kLost) return;
  word.due += fate.late;
  words_.push_back(word);
  if (fate.again < 0) return;
  word.due += fate.again;
  words_.push_back(word);
}

void World::send_data() {
  std::vector<FlowView> views;
  for (uint32_t i = 0; i < flows_.size(); ++i) {
    Flow& flow = flows_[i];
    if (flow.controller == nullptr || dead(flow)) continue;
    views.push_back(view(flow));
    const Bytes bytes = packets(flow);
    if (flow.unsent > 0) {
      note(flow, "sends {} of {} bytes at {:.3f} Gb/s", bytes, flow.unsent,
           flow.decision.rate.gbps());
    }
    if (bytes == 0) continue;
    flow.unsent -= bytes;
    views.back().rest = flow.unsent;
    flow.stats.in_flight += bytes;
    flow.stats.sent += bytes;
    data_.push_back({i, bytes, step_ + kDataSteps, {}});
  }
  checks_.on_step(step_, views, left_,
                  begun_ == scenario_.messages.size() || step_ > scenario_.dies);
}

// The bytes that leave in this step, in whole packets.
Bytes World::packets(Flow& flow) {
  flow.earned += flow.decision.rate.bytes_in(kStep);
  const Bytes most = std::min({flow.earned, flow.unsent, room(flow)});
  const Bytes bytes = most == flow.unsent ? most : most / kMtu * kMtu;
  flow.earned = std::min(flow.earned - bytes, kMtu);
  return bytes;
}

// The bytes that window and credit allow.
Bytes World::room(const Flow& flow) const {
  const auto& [decision, stats] = std::tie(flow.decision, flow.stats);
  return std::min(decision.window - std::min(decision.window, stats.in_flight),
                  decision.credit - std::min(decision.credit, stats.sent));
}

FlowView World::view(const Flow& flow) const {
  const Bytes packet = std::min(kMtu, flow.unsent);
  const Bytes left = room(flow);
  FlowView view;
  view.sender = flow.sender;
  view.receiver = flow.receiver;
  view.rate = flow.decision.rate;
  view.unsent = view.rest = flow.unsent;
  view.room = left >= packet ? left : 0;
  view.known = flow.known > flow.arrived + 2 * kBdp;
  view.grant_arrived =
      flow.received[0] && flow.newest[0] == wire::decode_grant(flow.newest_word[0]).epoch;
  view.demand_arrived =
      flow.received[1] && flow.newest[1] == wire::decode_demand(flow.newest_word[1]).epoch;
  view.announced = flow.newest_word[1] != 0;
  view.held = flow.stats.sent + packet > flow.decision.credit;
  view.network = flow.decision.limited_by == LimitedBy::kNetwork;
  view.granted = flow.decision.limited_by == LimitedBy::kGrant;
  view.busy_since = flow.busy_since;
  view.waiting = flow.stats.backlog > 0;
  return view;
}

// --- the trace of a run ---

void World::note(const Word& word, std::string_view fate) {
  if (!tracing_) return;
  const Flow& flow = flows_[word.flow];
  std::string text;
  if (word.kind == WordKind::kDemand) {
    const Demand demand = wire::decode_demand(word.content);
    text = fmt::format("demand {}: usable {:.3f} Gb/s, wanted {}", demand.epoch,
                       demand.usable.gbps(), demand.wanted);
  } else {
    const Grant grant = wire::decode_grant(word.content);
    text = fmt::format("{} {}: {:.3f} Gb/s for {:.0f} us",
                       word.kind == WordKind::kCts ? "CTS" : "grant", grant.epoch,
                       grant.rate.gbps(), grant.validity.us());
  }
  trace_ += fmt::format("{:4} {}->{} {} ({})\n", step_, flow.sender, flow.receiver, text, fate);
}

}  // namespace pacecar::model
