// Course of the flows of one NIC under `pace`: the decision and the demand of each, while flows
// begin, share the link, are granted less and end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "cc/pace/sender.h"
#include "tests/support/golden.h"

namespace pacecar::sender_rules_golden_test {
namespace {

constexpr Bytes kMtu = 4096;
constexpr uint32_t kFlows = 6;

FlowEnvironment fabric(Duration jitter = {}) {
  return {.line_rate = Rate::from_gbps(400),
          .mtu = kMtu,
          .overhead = 64,
          .burst_bytes = 4 * kMtu,
          .base_rtt = Duration::from_us(8),
          .jitter = jitter};
}

// The state of the network for some time.
struct Spell {
  const char* what;
  int64_t us = 20;
  Duration late;         // of all packets
  uint32_t lost_of = 0;  // one packet of this many; 0: none
};

// Flows that send all that their decisions allow, in steps.
class Course {
 public:
  explicit Course(const FlowEnvironment& environment)
      : environment_(environment), senders_(environment, PaceConstants{}, kFlows), flows_(kFlows) {
    text_ = "  time_us flow\n";
    for (uint32_t flow = 0; flow < kFlows; ++flow) add(flow);
  }

  void add(uint32_t flow) {
    flows_[flow] = {};
    flows_[flow].controller = &senders_.add_flow(now_, flow);
  }
  void remove(uint32_t flow) {
    senders_.remove_flow(now_, flow);
    flows_[flow].controller = nullptr;
  }
  void weigh(uint32_t flow, uint32_t weight) { senders_.set_weight(now_, flow, weight); }
  void want(uint32_t flow, Bytes bytes) {
    flows_[flow].stats.backlog += bytes;
    look(flow);
  }
  void time_out(uint32_t flow) {
    flows_[flow].controller->on_timeout(now_);
    look(flow);
  }
  // A grant of the receiver; by default as in a CTS, neither aligned nor busy.
  void grant(uint32_t flow, double gbps, Grant word = {}) {
    word.rate = Rate::from_bps(static_cast<uint64_t>(gbps * 1e9));
    if (word.validity == Duration()) word.validity = Duration::from_us(50);
    word.epoch = ++flows_[flow].epoch;
    flows_[flow].controller->on_grant(now_, word);
    look(flow);
  }
  void grant_all(double gbps, const Grant& word = {}) {
    for (uint32_t flow = 0; flow < kFlows; ++flow) grant(flow, gbps, word);
  }
  void run(const Spell& spell) {
    text_ += fmt::format("# {}\n", spell.what);
    for (const Instant end = now_ + Duration::from_us(spell.us); now_ < end; now_ = now_ + kStep) {
      for (uint32_t flow = 0; flow < kFlows; ++flow) step(flow, spell);
      std::array<uint32_t, 2> changed;
      while (const size_t count = senders_.poll_changed(now_, changed)) {
        for (size_t i = 0; i < count; ++i) look(changed[i]);
      }
    }
  }
  const std::string& text() const { return text_; }

 private:
  static constexpr Duration kStep = Duration::from_ns(500);
  struct Packet {
    Instant sent;
    Instant acknowledged;
    bool lost = false;
  };
  struct Flow {
    Controller* controller = nullptr;
    FlowStats stats;
    FlowLimits decision;
    std::deque<Packet> packets;
    Bytes earned = 0;
    uint32_t sent = 0;  // packets
    uint16_t epoch = 0;
    std::string shown;
    std::string shown_demand;
  };

  void step(uint32_t number, const Spell& spell) {
    Flow& flow = flows_[number];
    if (flow.controller == nullptr || flow.stats.backlog == 0) return;
    const Bytes unsent = flow.stats.backlog - flow.stats.in_flight;
    flow.earned = unsent > 0 ? flow.earned + flow.decision.rate.bytes_in(kStep) : 0;
    while (flow.earned >= kMtu && flow.stats.in_flight + kMtu <= flow.stats.backlog &&
           flow.stats.in_flight + kMtu <= flow.decision.window &&
           flow.stats.sent + kMtu <= flow.decision.credit) {
      flow.earned -= kMtu;
      flow.stats.in_flight += kMtu;
      flow.stats.sent += kMtu;
      const bool lost = spell.lost_of > 0 && ++flow.sent % spell.lost_of == 0;
      flow.packets.push_back({now_, now_ + environment_.base_rtt + spell.late, lost});
    }
    bool acknowledged = false;
    while (!flow.packets.empty() && flow.packets.front().acknowledged <= now_) {
      acknowledge(flow, flow.packets.front());
      flow.packets.pop_front();
      acknowledged = true;
    }
    if (acknowledged) look(number);
  }
  void acknowledge(Flow& flow, const Packet& packet) {
    flow.stats.in_flight -= kMtu;
    if (packet.lost) {
      return flow.controller->on_loss(
          now_, {.lost = kMtu, .in_flight = flow.stats.in_flight, .sent = flow.stats.sent});
    }
    flow.stats.acked += kMtu;
    flow.stats.backlog -= kMtu;
    flow.controller->on_ack(now_, {.rtt = now_ - packet.sent,
                                   .acked = kMtu,
                                   .in_flight = flow.stats.in_flight,
                                   .sent = flow.stats.sent});
  }

  // Polls demand and decision of the flow, and shows the changes.
  void look(uint32_t number) {
    Flow& flow = flows_[number];
    const auto demand = flow.controller->demand(now_, flow.stats);
    flow.decision = flow.controller->decide(now_);
    std::string shown_demand = "nothing";
    if (demand) {
      shown_demand = fmt::format("tells {:.3f}G wants {} epoch {}", demand->usable.gbps(),
                                 demand->wanted, demand->epoch);
    }
    const FlowLimits& d = flow.decision;
    std::string shown = fmt::format("sends {:.3f}G window {} burst {} {}", d.rate.gbps(), d.window,
                                    d.burst, to_string(d.limited_by));
    if (d.credit != ~Bytes{0}) shown += fmt::format(" credit {}", d.credit);
    if (flow.shown_demand != shown_demand) show(number, shown_demand);
    if (flow.shown != shown) show(number, shown);
    if (d.aligned) show(number, fmt::format("begins at {}", d.first_send.ns()));
    if (d.grid.period > Duration()) {
      show(number, fmt::format("grid {} + {}, {} late", d.grid.point.ns(), d.grid.period.ns(),
                               d.grid.late.ns()));
    }
    flow.shown_demand = shown_demand;
    flow.shown = shown;
  }
  void show(uint32_t number, const std::string& what) {
    text_ += fmt::format("{:>9.1f} {:>4} {}\n", static_cast<double>(now_.ns()) / 1e3, number, what);
  }

  const FlowEnvironment environment_;
  PaceSenders senders_;
  std::vector<Flow> flows_;
  Instant now_ = Instant::from_ns(1'000'000);
  std::string text_;
};

constexpr Duration kLong = Duration::from_ms(5);

TEST(CcPaceSendersGolden, FlowsThatComeAndGo) {
  Course course(fabric());
  course.grant_all(100, {.guessed = true, .validity = kLong});
  course.want(0, Bytes{1} << 20);
  course.run({.what = "one begins with a guess"});
  course.grant(0, 200, {.phase = Duration::from_ns(40), .aligned = true});
  course.run({.what = "and has its answer"});
  course.want(1, Bytes{1} << 21);
  course.want(2, Bytes{1} << 19);
  course.run({.what = "two more"});
  course.grant(1, 150, {.phase = Duration::from_ns(90), .aligned = true});
  course.grant(2, 390, {.aligned = true});
  course.weigh(1, 3);
  course.run({.what = "answers, and another weight"});
  course.run({.what = "no word for long", .us = 200});
  course.run({.what = "a farewell", .us = 1200});
  course.grant_all(80, {.busy = true, .validity = kLong});
  course.want(3, 20'000);
  course.want(4, Bytes{1} << 20);
  course.run(
      {.what = "on a link in use: a message of a first share, and one that waits for its answer"});
  course.grant(4, 60, {.phase = Duration::from_ns(500), .aligned = true});
  course.remove(0);
  course.run({.what = "which comes"});
  test::expect_golden("cc/pace_senders.txt", course.text());
}

TEST(CcPaceSendersGolden, BriefMessages) {
  Course course(fabric());
  course.grant_all(60, {.aligned = true, .validity = kLong});
  for (uint32_t flow = 0; flow < kFlows; ++flow) course.want(flow, 70 * kMtu - flow * kMtu);
  course.run({.what = "one after another"});
  course.grant_all(40, {.aligned = true, .validity = kLong});
  course.run({.what = "receivers that serve others", .us = 60});
  course.grant_all(50, {.aligned = true, .guessed = true, .validity = kLong});
  course.want(0, 40 * kMtu);
  course.run({.what = "what it holds is a guess", .us = 4});
  course.want(1, 20 * kMtu);
  course.want(2, 300 * kMtu);
  course.run({.what = "two more, one of which is long"});
  test::expect_golden("cc/pace_senders_brief.txt", course.text());
}

TEST(CcPaceSendersGolden, LinkThatSlowsDownOrLoses) {
  Course course(fabric());
  course.grant_all(400, {.aligned = true, .validity = kLong});
  course.want(0, Bytes{1} << 30);
  course.want(1, Bytes{1} << 30);
  course.run({.what = "a link as fast as configured", .us = 30});
  course.run({.what = "a queue", .us = 60, .late = Duration::from_us(9)});
  course.run({.what = "a longer one", .us = 100, .late = Duration::from_us(40)});
  course.run({.what = "losses", .us = 100, .lost_of = 8});
  course.time_out(0);
  course.run({.what = "a timeout", .us = 40});
  course.weigh(1, 8);
  course.run({.what = "another weight, and a queue", .us = 100, .late = Duration::from_us(9)});
  test::expect_golden("cc/pace_senders_link.txt", course.text());
}

TEST(CcPaceSendersGolden, HostsWithJitter) {
  Course course(fabric(Duration::from_us(4)));
  course.grant_all(100, {.aligned = true, .validity = kLong});
  course.want(0, 40 * kMtu);
  course.want(1, Bytes{1} << 20);
  course.run({.what = "one leaves at once"});
  course.grant(1, 300, {.aligned = true});
  course.want(2, Bytes{1} << 20);
  course.run({.what = "another one begins", .us = 40});
  test::expect_golden("cc/pace_senders_late_hosts.txt", course.text());
}

TEST(CcPaceSendersGolden, LinkOfUnknownRate) {
  FlowEnvironment environment = fabric();
  environment.first_rate = Rate::from_gbps(50);
  Course course(environment);
  course.grant_all(400, {.aligned = true, .validity = kLong});
  course.want(0, Bytes{1} << 24);
  course.want(1, Bytes{1} << 24);
  course.run({.what = "the rate grows", .us = 80});
  course.run({.what = "until there is a queue", .us = 80, .late = Duration::from_us(9)});
  test::expect_golden("cc/pace_senders_start.txt", course.text());
}

}  // namespace
}  // namespace pacecar::sender_rules_golden_test
