// Senders and receivers of `pace` together: do the rates of a small network become max-min rates?
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/max_min_reference.h"
#include "tests/support/pace_network.h"

namespace pacecar::network_test {
namespace {

using test::max_min_reference;
using test::MaxMinFlow;
using test::PaceNetwork;
using test::PaceNetworkConfig;

constexpr Bytes kEndless = Bytes{1} << 40;
constexpr Duration kRoundTrip = Duration::from_us(8);

// All flows begin within a round trip and never end. After 20 round trips each has the max-min rate
// of the reference.
void expect_max_min(PaceNetworkConfig config, const std::vector<MaxMinFlow>& flows,
                    double tolerance) {
  PaceNetwork network(config);
  Prng random(config.seed + 100);
  for (const MaxMinFlow& flow : flows) {
    network.connect(flow.source, flow.destination, static_cast<uint32_t>(flow.weight));
  }
  for (uint32_t id = 0; id < flows.size(); ++id) {
    network.run(Duration::from_ns(static_cast<int64_t>(random.below(8000 / flows.size()))));
    network.post(id, kEndless);
  }
  network.run(kRoundTrip * 20);
  const std::vector<double> rates = network.measure(kRoundTrip * 60);
  const auto line = static_cast<double>(config.environment.line_rate.bps());
  const std::vector<double> expected =
      max_min_reference(flows, config.hosts, line, PaceConstants{}.shared);
  for (size_t i = 0; i < flows.size(); ++i) {
    EXPECT_NEAR(rates[i] / expected[i], 1.0, tolerance)
        << "flow " << i << " from " << flows[i].source << " to " << flows[i].destination
        << " weight " << flows[i].weight << ": " << rates[i] / 1e9 << " of " << expected[i] / 1e9
        << " Gb/s, seed " << config.seed;
  }
}

TEST(CcPaceNetwork, SendersOfOneReceiverShareItEqually) {
  for (const uint32_t senders : {1U, 2U, 3U, 8U, 31U}) {
    std::vector<MaxMinFlow> flows;
    for (uint32_t i = 1; i <= senders; ++i) flows.push_back({i, 0});
    expect_max_min({.hosts = senders + 1}, flows, 0.03);
  }
}

TEST(CcPaceNetwork, SendersOfOneReceiverShareItByWeight) {
  expect_max_min({.hosts = 5}, {{1, 0, 1}, {2, 0, 2}, {3, 0, 4}, {4, 0, 1}}, 0.03);
}

TEST(CcPaceNetwork, FlowsOfOneSenderShareItsLink) {
  expect_max_min({.hosts = 5}, {{0, 1}, {0, 2}, {0, 3}, {0, 4}}, 0.03);
  expect_max_min({.hosts = 4}, {{0, 1, 1}, {0, 2, 3}, {0, 3, 4}}, 0.03);
}

// Flow 0 -> 1 is limited at its source, so 2 -> 1 gets the rest of the link to 1.
TEST(CcPaceNetwork, OtherFlowsUseTheRateThatALimitedFlowLeaves) {
  expect_max_min({.hosts = 6}, {{0, 1}, {0, 3}, {0, 4}, {0, 5}, {2, 1}}, 0.03);
}

// The shares of each link depend on the rates that the flows of the next link can use.
TEST(CcPaceNetwork, ChainsOfDependentLinksConverge) {
  expect_max_min({.hosts = 10},
                 {{0, 1}, {0, 2}, {0, 3}, {4, 3}, {5, 2}, {5, 6}, {7, 6}, {8, 6}, {8, 9}}, 0.03);
}

TEST(CcPaceNetwork, RandomMatricesConverge) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Prng random(seed);
    std::vector<MaxMinFlow> flows;
    for (uint32_t source = 0; source < 8; ++source) {
      for (uint32_t destination = 0; destination < 8; ++destination) {
        if (source == destination || !random.chance(0.3)) continue;
        flows.push_back({source, destination, static_cast<double>(1 + random.below(2))});
      }
    }
    expect_max_min({.hosts = 8, .seed = seed}, flows, 0.03);
  }
}

TEST(CcPaceNetwork, RatesConvergeWhenControlWritesAreLostLateAndRepeated) {
  std::vector<MaxMinFlow> flows;
  for (uint32_t i = 1; i <= 8; ++i) flows.push_back({i, 0, i % 2 + 1.0});
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    expect_max_min({.hosts = 9,
                    .words_lost = 0.2,
                    .words_repeated = 0.2,
                    .words_late = Duration::from_us(4),
                    .seed = seed},
                   flows, 0.03);
  }
}

// An incast whose receives are posted before the senders begin.
struct Incast {
  Bytes queue = 0;
  double time_us = 0;
  double ideal_us = 0;
};

Incast incast(uint32_t senders, Bytes size, PaceNetworkConfig config) {
  config.hosts = senders + 1;
  config.max_flows = senders;
  PaceNetwork network(config);
  for (uint32_t i = 1; i <= senders; ++i) network.connect(i, 0);
  for (uint32_t i = 0; i < senders; ++i) network.post(i, size);
  const Instant start = network.now();
  const auto left = [&] {
    Bytes sum = 0;
    for (uint32_t i = 0; i < senders; ++i) sum += size - network.received(i);
    return sum;
  };
  while (left() > 0 && network.now() - start < Duration::from_ms(50)) {
    network.run(Duration::from_us(1));
  }
  EXPECT_EQ(left(), 0U);
  const double wire = 1 + 64.0 / 4096;
  const double bytes = static_cast<double>(senders * size) * wire;
  return {network.take_queue(0), (network.now() - start).us(), bytes * 8 / 400e3 + 8};
}

TEST(CcPaceNetwork, IncastIsFastWithAShortQueue) {
  for (const uint32_t senders : {8U, 32U, 127U}) {
    const Incast run = incast(senders, 1'000'000, {});
    EXPECT_LE(run.queue, 45'000U) << senders;
    EXPECT_LE(run.time_us, 1.03 * run.ideal_us) << senders;
  }
}

TEST(CcPaceNetwork, LostGrantsCostLittle) {
  const Incast whole = incast(16, 1'000'000, {});
  const Incast lossy = incast(16, 1'000'000, {.words_lost = 0.2});
  EXPECT_LE(lossy.time_us, 1.03 * whole.time_us);
}

// 1000 receives are posted, and one sender has something to send.
TEST(CcPaceNetwork, PostedReceivesOfIdleFlowsTakeNothing) {
  PaceNetworkConfig config{.hosts = 3, .max_flows = 1001};
  PaceNetwork network(config);
  for (int i = 0; i < 1000; ++i) network.connect(1, 0);
  const uint32_t active = network.connect(2, 0);
  network.post(active, kEndless);
  network.run(kRoundTrip * 20);
  EXPECT_GT(network.measure(kRoundTrip * 10).back(), 0.97 * 400e9);
}

TEST(CcPaceNetwork, NoControlWritesLeaveWhileNothingHappens) {
  PaceNetwork network({.hosts = 3});
  network.connect(1, 0);
  network.connect(2, 0);
  network.post(0, 1'000'000);
  network.post(1, 1'000'000);
  network.run(Duration::from_ms(20));
  ASSERT_EQ(network.received(0) + network.received(1), 2'000'000U);
  const uint64_t before = network.words();
  network.run(Duration::from_s(1));
  EXPECT_EQ(network.words(), before);
}

}  // namespace
}  // namespace pacecar::network_test
