// Processes of `pace` behind one link that do not know each other; its nominal rate is right, wrong
// or unknown.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/pace_network.h"

namespace pacecar::neighbors_test {
namespace {

using test::PaceNetwork;
using test::PaceNetworkConfig;

constexpr Bytes kEndless = Bytes{1} << 40;

// --- a link of 500 Mb/s between virtual machines, and one of 400 Gb/s in a cluster ---

Rate mbps(uint64_t value) { return Rate::from_bps(value * 1'000'000); }

FlowEnvironment virtual_machine(Rate nominal, Rate first = {}) {
  return {.line_rate = nominal,
          .mtu = 4096,
          .overhead = 104,
          .burst_bytes = 61440,
          .base_rtt = Duration::from_us(100),
          .jitter = Duration::from_us(100),
          .pause = Duration::from_ms(25),
          .first_rate = first};
}

FlowEnvironment cluster(Rate nominal) {
  FlowEnvironment environment = PaceNetworkConfig().environment;
  environment.line_rate = nominal;
  return environment;
}

struct Case {
  std::string name;
  FlowEnvironment environment;
  Rate link;      // the real rate
  double use;     // the least use of the link
  Duration time;  // until the parts are equal
};

const Case kRight{"500 Mb/s, nominal rate right", virtual_machine(mbps(500)), mbps(500), 0.95,
                  Duration::from_s(1)};
const Case kDouble{"500 Mb/s, nominal rate 1 Gb/s", virtual_machine(mbps(1000)), mbps(500), 0.95,
                   Duration::from_s(1)};
const Case kUnknown{"500 Mb/s, nominal rate unknown",
                    virtual_machine(Rate::from_gbps(100), Rate::from_gbps(1)), mbps(500), 0.95,
                    Duration::from_s(1)};
const Case kFastRight{"400 Gb/s, nominal rate right", cluster(Rate::from_gbps(400)),
                      Rate::from_gbps(400), 0.85, Duration::from_ms(3)};
const Case kFastDouble{"400 Gb/s, nominal rate 800 Gb/s", cluster(Rate::from_gbps(800)),
                       Rate::from_gbps(400), 0.85, Duration::from_ms(3)};

double jain(const std::vector<double>& rates) {
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  double squares = 0;
  for (const double rate : rates) squares += rate * rate;
  return sum * sum / (static_cast<double>(rates.size()) * squares);
}
double use(const std::vector<double>& rates, Rate link) {
  return std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(link.bps());
}

// `n` processes, each with a flow of its own sender.
PaceNetwork neighbors(uint32_t n, const Case& c) {
  PaceNetwork network({.environment = c.environment,
                       .hosts = 2 * n,
                       .hosts_per_link = n,
                       .link_rate = c.link,
                       .max_flows = n});
  for (uint32_t i = 0; i < n; ++i) network.connect(n + i, i);
  return network;
}

// The longest queue once the parts are equal: twice the tolerated delay at the real rate (jitter,
// four packets, an eighth of the round trip), two packets of each process, and less than a round
// trip that a probe adds until its delay is measured.
Duration longest_queue(uint32_t n, const Case& c) {
  const FlowEnvironment& e = c.environment;
  const Bytes packet = e.mtu + e.overhead;
  const Duration usual = e.jitter + c.link.time_for(packet * 4) + e.base_rtt / 8;
  return usual * 2 + c.link.time_for(packet * 2 * n) + e.base_rtt;
}

void expect_equal_parts(uint32_t n, const Case& c, double fairness = 0.95) {
  PaceNetwork network = neighbors(n, c);
  for (uint32_t i = 0; i < n; ++i) network.post(i, kEndless);
  network.run(c.time);
  network.take_queue(0);
  const std::vector<double> rates = network.measure(c.time / 2);
  EXPECT_GE(jain(rates), fairness) << n << " at " << c.name;
  EXPECT_GE(use(rates, c.link), c.use) << n << " at " << c.name;
  EXPECT_LE(c.link.time_for(network.take_queue(0)).us(), longest_queue(n, c).us())
      << n << " at " << c.name;
}

TEST(CcPaceNeighbors, NeighborsShareALinkOfNominalRate) {
  for (const uint32_t n : {2U, 4U, 8U, 16U}) expect_equal_parts(n, kRight);
  for (const uint32_t n : {2U, 4U, 8U, 16U}) expect_equal_parts(n, kFastRight);
}

TEST(CcPaceNeighbors, NeighborsShareALinkSlowerThanNominal) {
  for (const uint32_t n : {2U, 4U, 8U, 16U}) expect_equal_parts(n, kDouble);
  for (const uint32_t n : {2U, 4U, 8U, 16U}) expect_equal_parts(n, kFastDouble);
}

TEST(CcPaceNeighbors, NeighborsShareALinkOfUnknownRate) {
  for (const uint32_t n : {2U, 4U, 8U, 16U}) expect_equal_parts(n, kUnknown);
}

// Processes that begin together fill the queue until the first cut. The queue is drained after the
// same time again.
TEST(CcPaceNeighbors, InitialQueueIsDrained) {
  for (const Case& c : {kRight, kDouble, kUnknown}) {
    PaceNetwork network = neighbors(8, c);
    for (uint32_t i = 0; i < 8; ++i) network.post(i, kEndless);
    network.run(Duration::from_ms(100));
    EXPECT_LT(c.link.time_for(network.take_queue(0)), Duration::from_ms(60)) << c.name;
    network.run(Duration::from_ms(100));
    network.take_queue(0);
    network.run(Duration::from_ms(100));
    EXPECT_LT(c.link.time_for(network.take_queue(0)), Duration::from_ms(6)) << c.name;
  }
}

TEST(CcPaceNeighbors, OthersTakeTheRateOfANeighborThatEnds) {
  for (const Case& c : {kRight, kDouble, kUnknown, kFastRight, kFastDouble}) {
    for (const uint32_t n : {2U, 8U}) {
      PaceNetwork network = neighbors(n, c);
      for (uint32_t i = 1; i < n; ++i) network.post(i, kEndless);
      // As many bytes as its part of the link carries in that time.
      network.post(0, c.link.bytes_in(c.time / static_cast<int64_t>(n)));
      network.run(c.time * 2);
      ASSERT_EQ(network.backlog(0), 0U) << n << " at " << c.name;
      std::vector<double> rates = network.measure(c.time / 2);
      EXPECT_GE(use(rates, c.link), c.use) << n - 1 << " of " << n << " at " << c.name;
      rates.erase(rates.begin());
      EXPECT_GE(jain(rates), 0.95) << n - 1 << " of " << n << " at " << c.name;
    }
  }
}

// Budgets converge in absolute steps, so the last differences take a while.
TEST(CcPaceNeighbors, LateNeighborGetsItsPart) {
  for (const Case& c : {kRight, kDouble, kUnknown, kFastRight, kFastDouble}) {
    for (const uint32_t n : {2U, 8U}) {
      PaceNetwork network = neighbors(n, c);
      for (uint32_t i = 1; i < n; ++i) network.post(i, kEndless);
      network.run(c.time);
      network.post(0, kEndless);
      network.run(c.time * 2);
      const std::vector<double> rates = network.measure(c.time / 2);
      EXPECT_GE(jain(rates), 0.9) << n << " at " << c.name;
      EXPECT_GE(use(rates, c.link), c.use) << n << " at " << c.name;
    }
  }
}

// A link whose rate changes suddenly, as that of a virtual machine.
void expect_followed(uint32_t n, const Case& c, double least) {
  PaceNetwork network = neighbors(n, c);
  for (uint32_t i = 0; i < n; ++i) network.post(i, kEndless);
  network.run(Duration::from_s(1));
  for (const Rate rate : {mbps(100), mbps(500), mbps(100), mbps(500)}) {
    network.set_link_rate(rate);
    network.run(Duration::from_ms(200));
    network.take_queue(0);
    const std::vector<double> rates = network.measure(Duration::from_ms(100));
    EXPECT_GE(use(rates, rate), least) << n << " at " << c.name << ", now " << rate.gbps();
    // The window of 16 packets at the nominal rate is short compared with this queue, so the queue
    // swings.
    EXPECT_LT(rate.time_for(network.take_queue(0)), Duration::from_ms(15)) << n << " at " << c.name;
  }
}

TEST(CcPaceNeighbors, NeighborsFollowAChangedLinkRate) {
  for (const uint32_t n : {1U, 2U, 4U, 8U}) {
    expect_followed(n, kRight, 0.9);
    expect_followed(n, kDouble, 0.9);
    if (n > 1) expect_followed(n, kUnknown, 0.85);
  }
}

// An idle flow begins at its last grant, which must not remain the rate before anything was learnt.
TEST(CcPaceNeighbors, IdleFlowsAreGrantedTheLearntRate) {
  PaceReceiver receiver(virtual_machine(Rate::from_gbps(100), Rate::from_gbps(1)), 2);
  constexpr Bytes kMuch = Bytes{1} << 30;
  Instant now = Instant::from_ns(1'000'000'000);
  std::vector<Rate> granted(2, Rate::from_gbps(1));
  for (uint32_t flow = 0; flow < 2; ++flow) {
    receiver.add_flow(now, flow);
    receiver.on_posted(now, flow, kMuch);
  }
  receiver.on_hint(now, {.peers = 1});
  for (uint16_t epoch = 1; now < Instant::from_ns(1'100'000'000); ++epoch) {
    const Demand demand{.usable = Rate::from_gbps(100), .wanted = kMuch, .epoch = epoch};
    receiver.on_demand(now, 0, demand);
    for (int packet = 0; packet < 64; ++packet) {
      now = now + granted[0].time_for(4200);
      receiver.on_arrival(now, 0, 4096, {1000, 4096});
      std::vector<GrantUpdate> words(4);
      words.resize(receiver.poll_grants(now, words));
      for (const GrantUpdate& word : words) granted[word.flow] = word.grant.rate;
    }
  }
  EXPECT_GT(granted[0], Rate::from_gbps(20));
  EXPECT_GT(granted[1], Rate::from_gbps(10));
}

// On a link of unknown rate, a longer serialization time looks like a queue until the shortest
// transit is forgotten, which takes 20,000 jitters twice.
TEST(CcPaceNeighbors, SingleProcessFinallyUsesASlowedLinkOfUnknownRate) {
  PaceNetwork network = neighbors(1, kUnknown);
  network.post(0, kEndless);
  network.run(Duration::from_s(1));
  network.set_link_rate(mbps(100));
  network.run(Duration::from_ms(500));
  EXPECT_GE(use(network.measure(Duration::from_ms(500)), mbps(100)), 0.45);
  network.run(Duration::from_s(3));
  EXPECT_GE(use(network.measure(Duration::from_ms(500)), mbps(100)), 0.9);
}

}  // namespace
}  // namespace pacecar::neighbors_test
