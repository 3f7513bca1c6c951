// Hosts whose links meet in one switch without a queue limit, each with a PaceSenders and a
// PaceReceiver. Packets are sent by the sender's decisions, wait for the receiver's link, and are
// acknowledged. Control words take half a round trip and may be late, lost or repeated. Several
// hosts may share one link, like processes that do not know of each other. Virtual time; one
// thread.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "cc/grant_word.h"
#include "cc/pace/receiver.h"
#include "cc/pace/sender.h"
#include "transport/base/pacer.h"
#include "transport/base/prng.h"

namespace pacecar::test {

struct PaceNetworkConfig {
  FlowEnvironment environment{.line_rate = Rate::from_gbps(400),
                              .mtu = 4096,
                              .overhead = 64,
                              .burst_bytes = 4096,
                              .base_rtt = Duration::from_us(8)};
  uint32_t hosts = 2;
  uint32_t hosts_per_link = 1;  // share the incoming link
  Rate link_rate;               // true rate of the incoming link; 0: the configured rate
  uint32_t max_flows = 64;
  double words_lost = 0;
  double words_repeated = 0;
  Duration words_late;  // most random delay of a word; words may overtake each other
  uint64_t seed = 1;
};

class PaceNetwork {
 public:
  explicit PaceNetwork(const PaceNetworkConfig& config)
      : config_(config),
        random_(config.seed),
        hosts_(config.hosts),
        links_((config.hosts + config.hosts_per_link - 1) / config.hosts_per_link),
        link_rate_(config.link_rate > Rate() ? config.link_rate : config.environment.line_rate) {
    const PaceConstants constants;
    for (Host& host : hosts_) {
      host.senders = std::make_unique<PaceSenders>(config.environment, constants, config.max_flows);
      host.receiver = std::make_unique<PaceReceiver>(config.environment, config.max_flows);
    }
  }

  // Adds a flow between two hosts; returns its number.
  uint32_t connect(uint32_t source, uint32_t destination, uint32_t weight = 1) {
    const auto id = static_cast<uint32_t>(flows_.size());
    Flow& flow = flows_.emplace_back();
    flow.source = source;
    flow.destination = destination;
    flow.controller = &hosts_[source].senders->add_flow(now_, id);
    hosts_[destination].receiver->add_flow(now_, id);
    hosts_[source].senders->set_weight(now_, id, weight);
    hosts_[destination].receiver->set_weight(now_, id, weight);
    return id;
  }

  // Posts a receive of `bytes` and sends its CTS; the sender already has the data.
  void post(uint32_t id, Bytes bytes) {
    hosts_[flows_[id].destination].receiver->on_posted(now_, id, bytes);
    // The words are sent after all receives that are posted at the same time.
    after({}, [this, id, bytes] {
      const uint32_t destination = flows_[id].destination;
      poll(destination);
      const uint64_t word = wire::encode_grant(hosts_[destination].receiver->grant(id));
      after(one_way(), [this, id, bytes, word] {
        flows_[id].controller->on_grant(now_, wire::decode_grant(word));
        flows_[id].stats.backlog += bytes;
        refresh(id);
        poll(flows_[id].source);
      });
    });
  }

  void run(Duration span) {
    const Instant end = now_ + span;
    while (!events_.empty() && events_.top().at <= end) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      event.act();
    }
    now_ = end;
  }

  Instant now() const { return now_; }
  Bytes received(uint32_t id) const { return flows_[id].received; }
  Bytes backlog(uint32_t id) const { return flows_[id].stats.backlog; }
  // By the sender's state.
  FlowLimits decision(uint32_t id) const { return flows_[id].decision; }
  Grant grant(uint32_t id) const { return hosts_[flows_[id].destination].receiver->grant(id); }
  // The longest queue at a host's link since the last call.
  Bytes take_queue(uint32_t host) {
    return link_rate_.bytes_in(std::exchange(link_of(host).longest, {}));
  }
  void set_link_rate(Rate rate) { link_rate_ = rate; }
  // The words sent so far, both ways.
  uint64_t words() const { return words_; }
  // Mean payload rate of each flow over `span` from now, in bit/s on the wire.
  std::vector<double> measure(Duration span) {
    std::vector<double> rates;
    for (const Flow& flow : flows_) rates.push_back(-static_cast<double>(flow.received));
    run(span);
    const double wire = 1 + static_cast<double>(config_.environment.overhead) /
                                static_cast<double>(config_.environment.mtu);
    for (size_t i = 0; i < flows_.size(); ++i) {
      rates[i] = (rates[i] + static_cast<double>(flows_[i].received)) * 8 * wire / span.seconds();
    }
    return rates;
  }

 private:
  struct Flow {
    uint32_t source = 0;
    uint32_t destination = 0;
    Controller* controller = nullptr;
    FlowStats stats;
    FlowLimits decision;
    Bytes unsent() const { return stats.backlog - stats.in_flight; }
    Pacer pacer{4 * 4160};  // may catch up four packets, like a NIC
    Instant armed = Instant::never();
    Bytes received = 0;
    uint64_t demand_word = ~uint64_t{0};
  };
  struct Host {
    std::unique_ptr<PaceSenders> senders;
    std::unique_ptr<PaceReceiver> receiver;
    Instant out_free;
    Instant armed = Instant::never();
  };
  // The incoming link.
  struct Link {
    Instant free;
    Duration longest;  // wait in the queue
  };
  struct Event {
    Instant at;
    uint64_t order;
    std::function<void()> act;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  void after(Duration delay, std::function<void()> act) {
    events_.push({now_ + delay, order_++, std::move(act)});
  }
  Link& link_of(uint32_t host) { return links_[host / config_.hosts_per_link]; }
  Duration one_way() const { return config_.environment.base_rtt / 2; }
  Bytes wire(Bytes payload) const { return payload + config_.environment.overhead; }

  // Delivers a word to the other end. A lost word is sent again two round trips later.
  void carry(const std::function<void()>& deliver) {
    ++words_;
    for (int copies = random_.chance(config_.words_repeated) ? 2 : 1; copies > 0; --copies) {
      Duration delay = one_way();
      while (random_.chance(config_.words_lost)) delay = delay + config_.environment.base_rtt * 2;
      const auto most_late = static_cast<uint64_t>(config_.words_late.ns());
      const auto late = static_cast<int64_t>(random_.below(most_late + 1));
      after(delay + Duration::from_ns(late), deliver);
    }
  }

  // Sends the flow's demand to the receiver, and applies the new decision.
  void refresh(uint32_t id) {
    Flow& flow = flows_[id];
    const auto demand = flow.controller->demand(now_, flow.stats);
    if (demand && wire::encode_demand(*demand) != flow.demand_word) {
      flow.demand_word = wire::encode_demand(*demand);
      carry([this, id, word = flow.demand_word] {
        Host& host = hosts_[flows_[id].destination];
        host.receiver->on_demand(now_, id, wire::decode_demand(word));
        poll(flows_[id].destination);
      });
    }
    flow.decision = flow.controller->decide(now_);
    flow.pacer.set_rate(flow.decision.rate, now_);
    if (flow.decision.aligned) flow.pacer.align(flow.decision.first_send);
    flow.pacer.move_to(flow.decision.grid, now_);
    arm(id);
  }

  void arm(uint32_t id) {
    Flow& flow = flows_[id];
    if (flow.unsent() == 0 || !may_send(flow)) return;
    const Instant at = std::max({now_, flow.pacer.next_send(), hosts_[flow.source].out_free});
    if (flow.armed == at) return;
    flow.armed = at;
    after(at - now_, [this, id, at] {
      if (flows_[id].armed != at) return;
      flows_[id].armed = Instant::never();
      transmit(id);
    });
  }

  bool may_send(const Flow& flow) const {
    const Bytes packet = std::min(flow.unsent(), config_.environment.mtu);
    return flow.stats.in_flight + packet <= std::max(flow.decision.window, packet) &&
           flow.stats.sent + packet <= flow.decision.credit;
  }

  // Sends one packet: the NIC paces bursts of one packet.
  void transmit(uint32_t id) {
    Flow& flow = flows_[id];
    Host& host = hosts_[flow.source];
    if (flow.unsent() == 0 || !may_send(flow)) return;
    if (now_ < std::max(flow.pacer.next_send(), host.out_free)) return arm(id);
    const Bytes packet = std::min(flow.unsent(), config_.environment.mtu);
    flow.stats.in_flight += packet;
    flow.stats.sent += packet;
    flow.pacer.on_sent(wire(packet), now_);
    host.out_free = now_ + config_.environment.line_rate.time_for(wire(packet));
    const Instant sent = now_;
    after(one_way(), [this, id, packet, sent] { enter_link(id, packet, sent); });
    arm(id);
  }

  // A packet arrives at the receiver's link.
  void enter_link(uint32_t id, Bytes packet, Instant sent) {
    Link& link = link_of(flows_[id].destination);
    link.longest = std::max(link.longest, link.free - now_);
    link.free = std::max(link.free, now_) + link_rate_.time_for(wire(packet));
    after(link.free - now_, [this, id, packet, sent] { arrive(id, packet, sent); });
  }

  void arrive(uint32_t id, Bytes packet, Instant sent) {
    Flow& flow = flows_[id];
    PaceReceiver& receiver = *hosts_[flow.destination].receiver;
    flow.received += packet;
    receiver.on_arrival(now_, id, packet,
                        {static_cast<uint32_t>((now_ - sent).ns()), static_cast<uint32_t>(packet)});
    receiver.on_finished(now_, id, packet);
    poll(flow.destination);
    after(one_way(), [this, id, packet, sent] { acknowledge(id, packet, sent); });
  }

  void acknowledge(uint32_t id, Bytes packet, Instant sent) {
    Flow& flow = flows_[id];
    flow.stats.in_flight -= packet;
    const Duration serial = link_rate_.time_for(wire(packet));
    flow.controller->on_ack(now_, {.rtt = now_ - sent - serial,
                                   .acked = packet,
                                   .in_flight = flow.stats.in_flight,
                                   .sent = flow.stats.sent});
    flow.stats.acked += packet;
    flow.stats.backlog -= packet;
    refresh(id);
    poll(flow.source);
  }

  // Sends the grants of a host that are due, and schedules the next.
  void poll(uint32_t index) {
    Host& host = hosts_[index];
    std::array<GrantUpdate, 32> updates;
    while (const size_t count = host.receiver->poll_grants(now_, updates)) {
      for (const GrantUpdate& update : std::span(updates).first(count)) {
        const uint64_t word = wire::encode_grant(update.grant);
        carry([this, id = update.flow, word] {
          flows_[id].controller->on_grant(now_, wire::decode_grant(word));
          refresh(id);
          poll(flows_[id].source);
        });
      }
    }
    std::array<uint32_t, 8> changed;
    while (const size_t count = host.senders->poll_changed(now_, changed)) {
      for (const uint32_t id : std::span(changed).first(count)) refresh(id);
    }
    const Instant next =
        std::max(std::min(host.receiver->next_deadline(), host.senders->next_deadline()),
                 now_ + Duration::from_ns(1));
    if (next == Instant::never() || (host.armed > now_ && host.armed <= next)) return;
    host.armed = next;
    after(next - now_, [this, index, next] {
      if (hosts_[index].armed == next) poll(index);
    });
  }

  const PaceNetworkConfig config_;
  Prng random_;
  std::vector<Host> hosts_;
  std::vector<Link> links_;
  Rate link_rate_;
  std::vector<Flow> flows_;
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  uint64_t words_ = 0;
  Instant now_ = Instant::from_ns(1'000'000'000);
};

}  // namespace pacecar::test
