// Course of a receiver of `pace`: the grants that it sends while flows begin, send and end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "cc/host_link.h"
#include "cc/pace/receiver.h"
#include "tests/support/golden.h"

namespace pacecar::receiver_golden_test {
namespace {

constexpr Bytes kMtu = 4096;
constexpr uint32_t kFlows = 8;

FlowEnvironment fabric() {
  return {.line_rate = Rate::from_gbps(400),
          .mtu = kMtu,
          .overhead = 64,
          .burst_bytes = 4 * kMtu,
          .base_rtt = Duration::from_us(8)};
}

// The other processes of the host, scripted by the test.
class OtherProcesses final : public HostLink {
 public:
  void claim(Instant, const LinkClaim& claim) override { claimed = claim; }
  bool due(Instant) const override { return std::exchange(woken, false); }
  Instant next_deadline() const override { return Instant::never(); }
  uint32_t place() const override { return 1; }
  Rate part() const override { return given; }
  Rate reach() const override { return given; }
  Rate prospect(uint32_t weight) const override {
    return Rate::from_bps(400'000'000'000 / (weight + weights) * weight);
  }
  double share_of_weights() const override { return 0.5; }
  Rate fair_part(Rate learnt) override { return learnt; }
  Rate used_by_others() const override { return used; }

  LinkClaim claimed;
  Rate given = Rate::from_gbps(400);
  Rate used;
  uint32_t weights = 0;
  mutable bool woken = false;
};

// Senders that obey their grants immediately.
class Course {
 public:
  explicit Course(const FlowEnvironment& environment)
      : receiver_(environment, kFlows), flows_(kFlows), half_(environment.base_rtt / 2) {
    text_ = "  time_us flow  rate_gbps  phase_ns  validity_us  epoch\n";
    for (uint32_t flow = 0; flow < kFlows; ++flow) receiver_.add_flow(now_, flow);
  }
  PaceReceiver& receiver() { return receiver_; }
  Instant now() const { return now_; }
  void note(const char* what) { text_ += fmt::format("# {}\n", what); }
  void post(uint32_t flow, Bytes bytes) { receiver_.on_posted(now_, flow, bytes); }
  void want(uint32_t flow, double usable_gbps, Bytes more) {
    Sender& sender = flows_[flow];
    sender.wanted += more;
    receiver_.on_demand(now_, flow,
                        {.usable = Rate::from_bps(static_cast<uint64_t>(usable_gbps * 1e9)),
                         .wanted = sender.wanted,
                         .epoch = ++sender.epoch});
  }
  void begin(uint32_t flow, double usable_gbps, Bytes bytes) {
    post(flow, bytes);
    want(flow, usable_gbps, bytes);
  }
  // From now on the flow sends nothing.
  void silence(uint32_t flow) { flows_[flow].silent = true; }
  // Bytes arrive without a demand.
  void arrive(uint32_t flow, Bytes bytes) {
    receiver_.on_arrival(now_, flow, bytes, {static_cast<uint32_t>(half_.ns()), 4096});
    receiver_.on_finished(now_, flow, bytes);
  }
  // Runs in steps of a quarter of a microsecond. Packets take half a round trip, and packets of
  // `late_flow` take `late` longer.
  void run(Duration span, Duration late = {}, uint32_t late_flow = kFlows) {
    const Duration step = Duration::from_ns(250);
    for (const Instant end = now_ + span; now_ < end; now_ = now_ + step) {
      for (uint32_t flow = 0; flow < kFlows; ++flow) {
        send(flow, step, flow == late_flow ? late : Duration());
      }
      poll();
    }
  }
  std::string text() const { return text_; }

 private:
  struct Sender {
    Bytes wanted = 0;
    Bytes sent = 0;
    uint16_t epoch = 0;
    Rate rate;
    Bytes earned = 0;
    bool silent = false;
  };

  void send(uint32_t flow, Duration step, Duration late) {
    Sender& sender = flows_[flow];
    if (sender.sent == sender.wanted || sender.silent) return;
    sender.earned += sender.rate.bytes_in(step);
    while (sender.earned >= kMtu && sender.sent < sender.wanted) {
      const Bytes bytes = std::min(kMtu, sender.wanted - sender.sent);
      sender.earned -= kMtu;
      sender.sent += bytes;
      receiver_.on_arrival(now_, flow, bytes, {static_cast<uint32_t>((half_ + late).ns()), 4096});
      receiver_.on_finished(now_, flow, bytes);
    }
    if (sender.sent < sender.wanted) return;
    sender.earned = 0;
    receiver_.on_demand(now_, flow, {.wanted = sender.wanted, .epoch = ++sender.epoch});
  }
  void poll() {
    std::array<GrantUpdate, 3> updates;
    for (size_t count = updates.size(); count == updates.size();) {
      count = receiver_.poll_grants(now_, updates);
      for (size_t i = 0; i < count; ++i) show(updates[i]);
    }
  }
  void show(const GrantUpdate& update) {
    const Grant& grant = update.grant;
    flows_[update.flow].rate = grant.rate;
    text_ += fmt::format("{:>9.2f} {:>4} {:>10.3f} {:>9} {:>12.1f} {:>6}{}{}{}\n",
                         static_cast<double>((now_ - Instant()).ns()) / 1e3, update.flow,
                         static_cast<double>(grant.rate.bps()) / 1e9, grant.phase.ns(),
                         static_cast<double>(grant.validity.ns()) / 1e3, grant.epoch,
                         grant.aligned ? " aligned" : "", grant.busy ? " busy" : "",
                         grant.guessed ? " guessed" : "");
  }

  PaceReceiver receiver_;
  std::vector<Sender> flows_;
  Duration half_;
  Instant now_;
  std::string text_;
};

TEST(CcPaceReceiverGolden, FlowsThatComeAndGo) {
  Course course(fabric());
  course.note("receives are posted: what idle flows hold");
  for (uint32_t flow = 0; flow < 4; ++flow) course.post(flow, 1 << 20);
  course.run(Duration::from_us(20));
  course.note("one begins, two more, one of which cannot use its part");
  course.want(0, 400, 1 << 20);
  course.run(Duration::from_us(10));
  course.want(1, 400, 1 << 20);
  course.want(2, 50, 1 << 20);
  course.run(Duration::from_us(20));
  course.note("another weight");
  course.receiver().set_weight(course.now(), 1, 4);
  course.run(Duration::from_us(200));
  course.note("brief messages, one of which waits for nothing");
  course.begin(3, 400, 64 << 10);
  course.begin(4, 400, 2000);
  course.run(Duration::from_us(100));
  course.note("a flow of which a sender advertised others, and that is removed");
  course.begin(5, 400, 4 << 20);
  course.run(Duration::from_us(30));
  course.receiver().remove_flow(course.now(), 6);
  course.receiver().on_hint(course.now(), {.peers = 3});
  course.run(Duration::from_us(150));
  test::expect_golden("cc/pace_receiver.txt", course.text());
}

TEST(CcPaceReceiverGolden, Incasts) {
  Course course(fabric());
  for (int round = 0; round < 6; ++round) {
    course.note("all but one at once");
    for (uint32_t flow = 0; flow + 1 < kFlows; ++flow) course.begin(flow, 400, 200'000);
    course.run(Duration::from_us(60));
  }
  course.note("one after another");
  for (uint32_t flow = 0; flow < kFlows; ++flow) {
    course.begin(flow, 400, 100'000);
    course.run(Duration::from_us(10));
  }
  test::expect_golden("cc/pace_receiver_incasts.txt", course.text());
}

TEST(CcPaceReceiverGolden, LinkWithForeignTraffic) {
  FlowEnvironment environment = fabric();
  environment.jitter = Duration::from_us(2);
  Course course(environment);
  course.begin(0, 400, 8 << 20);
  course.begin(1, 400, 8 << 20);
  course.run(Duration::from_us(50));
  course.note("packets of one are late");
  course.run(Duration::from_us(100), Duration::from_us(30), 1);
  course.note("what others send to this NIC");
  for (int i = 0; i < 50; ++i) {
    course.receiver().on_foreign_arrival(course.now(), 25'000);
    course.run(Duration::from_us(2));
  }
  course.note("no more of it");
  course.run(Duration::from_us(200));
  test::expect_golden("cc/pace_receiver_others.txt", course.text());
}

TEST(CcPaceReceiverGolden, SendersThatAreSilent) {
  Course course(fabric());
  course.note("one whose demand is lost");
  for (uint32_t flow = 0; flow < 5; ++flow) course.post(flow, 1 << 20);
  course.run(Duration::from_us(20));
  for (int i = 0; i < 20; ++i) {
    course.arrive(0, 5 * kMtu);
    course.run(Duration::from_us(1));
  }
  course.note("three, of which two fall silent");
  for (uint32_t flow = 1; flow < 4; ++flow) course.want(flow, 400, 4 << 20);
  course.run(Duration::from_us(10));
  course.silence(1);
  course.silence(2);
  course.run(Duration::from_us(130));
  course.note("messages that are too short for a demand");
  for (int i = 0; i < 8; ++i) {
    course.arrive(4, 2000);
    course.arrive(5, 2000);
    course.run(Duration::from_us(15));
  }
  course.note("an end, and another beginning");
  course.receiver().remove_flow(course.now(), 3);
  course.receiver().add_flow(course.now(), 3);
  course.run(Duration::from_us(30));
  test::expect_golden("cc/pace_receiver_silent.txt", course.text());
}

TEST(CcPaceReceiverGolden, OneProcessOfAHost) {
  OtherProcesses others;
  FlowEnvironment environment = fabric();
  environment.host_link = &others;
  Course course(environment);
  const auto turn = [&](const char* what, Duration span) {
    course.note(what);
    for (int i = 0; i < 4; ++i) {
      others.woken = true;
      course.run(span / 4);
    }
    course.note(fmt::format("claims {} for {}{}", others.claimed.demand.gbps(),
                            others.claimed.weight, others.claimed.ready ? ", ready" : "")
                    .c_str());
  };
  for (uint32_t flow = 0; flow < 4; ++flow) course.post(flow, 1 << 20);
  turn("alone", Duration::from_us(20));
  others.weights = 2;
  turn("others may begin", Duration::from_us(20));
  others.used = Rate::from_gbps(100);
  turn("and do", Duration::from_us(40));
  others.given = Rate::from_gbps(150);
  course.want(0, 400, 2 << 20);
  course.want(1, 40, 1 << 20);
  turn("two of ours begin", Duration::from_us(40));
  course.receiver().set_weight(course.now(), 0, 2);
  turn("another weight", Duration::from_us(40));
  others.given = Rate::from_gbps(300);
  others.used = Rate();
  turn("the others end", Duration::from_us(200));
  others.weights = 0;
  turn("alone again", Duration::from_us(100));
  others.weights = 1;
  others.given = Rate::from_gbps(100);
  course.want(2, 400, 1 << 18);
  turn("one begins beside others", Duration::from_us(60));
  course.receiver().set_weight(course.now(), 3, 4);
  course.want(3, 400, 1 << 20);
  turn("and another one later", Duration::from_us(20));
  course.note("packets of both are late");
  course.want(2, 400, 1 << 20);
  course.run(Duration::from_us(120), Duration::from_us(9), 2);
  course.run(Duration::from_us(120), Duration::from_us(9), 3);
  test::expect_golden("cc/pace_receiver_host.txt", course.text());
}

TEST(CcPaceReceiverGolden, HostsWithJitter) {
  FlowEnvironment environment = fabric();
  environment.jitter = Duration::from_us(5);
  environment.pause = Duration::from_us(40);
  Course course(environment);
  course.note("receives are posted");
  for (uint32_t flow = 0; flow < kFlows; ++flow) course.post(flow, 1 << 20);
  course.run(Duration::from_us(100));
  for (uint32_t together = 1; together < 6; together += 2) {
    course.note("some begin");
    for (uint32_t flow = 0; flow < together; ++flow) course.want(flow, 400, 1 << 19);
    course.run(Duration::from_us(150));
  }
  test::expect_golden("cc/pace_receiver_late_hosts.txt", course.text());
}

}  // namespace
}  // namespace pacecar::receiver_golden_test
