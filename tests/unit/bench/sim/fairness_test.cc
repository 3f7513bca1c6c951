// Max-min rates, against values computed by hand and their definition; metrics from samples of
// known flows.
#include <gmock/gmock.h>

#include <cmath>

#include "bench/sim/metrics.h"
#include "bench/sim/spec_file.h"
#include "net_plugin/predict/fluid.h"
#include "tests/support/max_min.h"
#include "transport/base/prng.h"

namespace pacecar::fairness_test {
namespace {

using test::MaxMinFlow;
using testing::DoubleNear;
using testing::Pointwise;

// By the solver of the metrics, in which each direction of a host's link is a link.
std::vector<double> rates_of(const std::vector<MaxMinFlow>& flows,
                             const std::vector<double>& capacities) {
  std::vector<predict::Link> links;
  for (int direction = 0; direction < 2; ++direction) {
    for (const double capacity : capacities) links.push_back({.rate = capacity});
  }
  std::vector<predict::Route> routes;
  for (const MaxMinFlow& flow : flows) {
    predict::Route& route = routes.emplace_back();
    route.add(flow.source);
    route.add(static_cast<uint32_t>(capacities.size()) + flow.destination);
    for (auto& use : route.uses) use.weight = static_cast<float>(flow.weight);
  }
  std::vector<predict::Allotment> found(flows.size());
  predict::MaxMin(links).solve(routes, found);
  std::vector<double> rates;
  for (const predict::Allotment& each : found) rates.push_back(each.rate);
  return rates;
}

TEST(MaxMin, ALinkIsDividedEqually) {
  EXPECT_THAT(rates_of({{0, 3}, {1, 3}, {2, 3}}, {90, 90, 90, 90}),
              Pointwise(DoubleNear(1e-6), {30, 30, 30}));
}

TEST(MaxMin, OtherFlowsGetTheRestOfALimitedFlow) {
  // Host 0's link is slow; host 3 receives from all.
  EXPECT_THAT(rates_of({{0, 3}, {1, 3}, {2, 3}}, {10, 90, 90, 90}),
              Pointwise(DoubleNear(1e-6), {10, 40, 40}));
}

TEST(MaxMin, RatesFollowAChainOfBottlenecks) {
  // Host 6 receives three flows: 30 each. That leaves 60 of host 0's link to its other flow, and
  // host 7's link to be shared equally.
  const std::vector<double> links(9, 90);
  EXPECT_THAT(rates_of({{0, 5}, {0, 6}, {1, 6}, {2, 6}, {2, 7}, {3, 7}}, links),
              Pointwise(DoubleNear(1e-6), {60, 30, 30, 30, 45, 45}));
}

TEST(MaxMin, RatesAreProportionalToWeights) {
  EXPECT_THAT(rates_of({{0, 3, 1}, {1, 3, 3}, {2, 3, 5}}, {90, 90, 90, 90}),
              Pointwise(DoubleNear(1e-6), {10, 30, 50}));
}

TEST(MaxMin, WithoutFlowsThereAreNoRates) { EXPECT_TRUE(rates_of({}, {1, 1}).empty()); }

// The definition: no link carries more than its capacity, and every flow has a full link on which
// no flow has a higher rate per weight.
TEST(MaxMin, EveryFlowHasABottleneck) {
  Prng random(7);
  constexpr size_t kHosts = 12;
  for (int round = 0; round < 200; ++round) {
    std::vector<double> capacities(kHosts);
    for (double& capacity : capacities) capacity = static_cast<double>(10 + random.below(90));
    std::vector<MaxMinFlow> flows(1 + random.below(40));
    for (MaxMinFlow& flow : flows) {
      flow.source = static_cast<uint32_t>(random.below(kHosts));
      flow.destination = static_cast<uint32_t>(random.below(kHosts));
      flow.weight = static_cast<double>(1 + random.below(4));
    }
    const auto rates = rates_of(flows, capacities);
    const auto reference = test::max_min_rates(flows, capacities);
    for (size_t i = 0; i < flows.size(); ++i) EXPECT_NEAR(rates[i], reference[i], 1e-6);
    const auto is_bottleneck = [&](size_t of, uint32_t MaxMinFlow::*end) {
      double used = 0;
      bool largest = true;
      for (size_t i = 0; i < flows.size(); ++i) {
        if (flows[i].*end != flows[of].*end) continue;
        used += rates[i];
        largest &= rates[i] / flows[i].weight <= rates[of] / flows[of].weight * (1 + 1e-6);
      }
      const double capacity = capacities[flows[of].*end];
      EXPECT_LE(used, capacity * (1 + 1e-6));
      return largest && used > capacity * (1 - 1e-6);
    };
    for (size_t i = 0; i < flows.size(); ++i) {
      const bool out = is_bottleneck(i, &MaxMinFlow::source);
      const bool in = is_bottleneck(i, &MaxMinFlow::destination);
      EXPECT_TRUE(out || in) << "round " << round << ", flow " << i;
    }
  }
}

// --- samples ---

constexpr double kPayload = 100e9;  // what a link leaves for payload

// Links of 100 Gb/s of payload; a round trip of 16 us, samples of 1 us. Host 0 sends to host 2 from
// 0 to 1000 us, host 1 from 400 to 800 us, at the rates of the test.
class Shares : public testing::Test {
 protected:
  using RateAt = double (*)(int us);

  RunResult run(RateAt first, RateAt second) {
    const auto file = parse_spec(
        "[topology]\nkind = \"star\"\nhosts = 3\nrate = \"100G\"\n"
        "[workload]\nkind = \"incast\"\nsenders = 2",
        "x.toml");
    RunSpec spec = *make_run_spec(*file->table(), "", 1);
    const Bytes packet =
        spec.transport.mtu + packet_sizes(spec, spec.fabric.hosts.overhead_bytes).overhead;
    const double wire =
        kPayload * static_cast<double>(packet) / static_cast<double>(spec.transport.mtu);
    for (Cable& cable : spec.topology.cables) {
      cable.rate = Rate::from_bps(static_cast<uint64_t>(wire));
    }
    RunResult result;
    result.jobs = {"all"};
    result.base_rtt = Duration::from_us(16);
    result.duration = Duration::from_us(1000);
    result.flows = {flow(0, 0, 1000), flow(1, 400, 800)};
    result.rates = {series(0, first), series(1, second)};
    fill_shares(spec, result);
    return result;
  }

  static double value(const RunResult& run, std::string_view metric) {
    return metric_value(run, metric).value();
  }

 private:
  static FlowResult flow(uint32_t source, int64_t start_us, int64_t received_us) {
    return {.source = source,
            .destination = 2,
            .bytes = 1'000'000,
            .start = Duration::from_us(start_us),
            .received = Duration::from_us(received_us),
            .finish = Duration::from_us(received_us)};
  }
  static Series series(size_t of, RateAt rate) {
    Series series{.name = "", .interval = Duration::from_us(1), .values = {}, .flow = of};
    for (int us = 0; us < 1000; ++us) series.values.push_back(rate(us));
    return series;
  }
};

TEST_F(Shares, FairFlowsHaveTheirShareWithinARoundTrip) {
  const RunResult shared = run([](int us) { return us < 400 || us >= 800 ? 100e9 : 50e9; },
                               [](int us) { return us < 400 || us >= 800 ? 0 : 50e9; });
  EXPECT_NEAR(value(shared, "share"), 1, 1e-6);
  EXPECT_NEAR(value(shared, "maxmin_error"), 0, 1e-6);
  EXPECT_NEAR(value(shared, "jain_min"), 1, 1e-9);
  // Means of 8 us, half a round trip: 8 samples at 50 reach 90% of 50; 1 at 50 with 7 at 100 reach
  // 90% of 100.
  EXPECT_NEAR(value(shared, "newcomer_rtts"), 8.0 / 16, 1e-9);
  EXPECT_NEAR(value(shared, "leaver_rtts"), 7.0 / 16, 1e-9);
}

TEST_F(Shares, NewcomerRttsIncludeTheWaitForAFairShare) {
  // The second flow gets a tenth for 200 us, then its half.
  const RunResult late = run([](int us) { return us < 600 ? 90e9 : 50e9; },
                             [](int us) { return us < 400   ? 0
                                                 : us < 600 ? 10e9
                                                            : 50e9; });
  EXPECT_NEAR(value(late, "newcomer_rtts"), (200 + 7) / 16.0, 1e-9);
  EXPECT_LT(value(late, "jain_min"), 0.66);    // 9 to 1: 100 / (2 x 82)
  EXPECT_NEAR(value(late, "share"), 1, 1e-6);  // both flows together
  // The first flow stays at 50 of 100 after the second one has ended.
  EXPECT_TRUE(std::isnan(value(late, "leaver_rtts")));
}

TEST_F(Shares, NewcomerRttsOfAStarvedFlowAreItsWholeTime) {
  const RunResult starved =
      run([](int) { return 95e9; }, [](int us) { return us < 400 ? 0 : 5e9; });
  EXPECT_NEAR(value(starved, "newcomer_rtts"), 400 / 16.0, 1e-9);  // all of its time
  EXPECT_NEAR(value(starved, "maxmin_error"), 0.9, 1e-6);
  EXPECT_NEAR(value(starved, "share"), 1, 1e-6);  // both flows together
}

TEST_F(Shares, TooCoarseSamplesGiveNoMetrics) {
  RunResult coarse = run([](int) { return 50e9; }, [](int) { return 50e9; });
  EXPECT_FALSE(std::isnan(value(coarse, "jain_min")));
  coarse.base_rtt = Duration::from_us(3);  // a sample of 1 us exceeds a quarter of that
  EXPECT_TRUE(std::isnan(value(coarse, "jain_min")));
}

}  // namespace
}  // namespace pacecar::fairness_test
