// The predictor, compared with arithmetic: rates that links allow, times of flows that wait for one
// another, and collectives on clusters whose times are known.
#include "net_plugin/predict/predict.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "net_plugin/predict/fluid.h"
#include "tests/support/predict_together.h"

namespace pacecar::predict::predict_test {
namespace {

Route over(std::initializer_list<uint32_t> links) {
  Route route;
  for (const uint32_t link : links) route.add(link);
  return route;
}

TEST(MaxMin, TightestLinkFillsFirstAndOtherFlowsTakeTheRest) {
  const std::array links{Link{10}, Link{4}};
  MaxMin solver(links);
  std::vector<Route> routes{over({0}), over({0, 1}), over({1})};
  std::vector<Allotment> found(3);
  solver.solve(routes, found);
  EXPECT_DOUBLE_EQ(found[1].rate, 2);
  EXPECT_DOUBLE_EQ(found[2].rate, 2);
  EXPECT_DOUBLE_EQ(found[0].rate, 8);
  EXPECT_EQ(found[1].limit, 1U);
  EXPECT_EQ(found[0].limit, 0U);
}

TEST(MaxMin, LoadCountsAsSeveralFlowsAndRateMaxHolds) {
  const std::array links{Link{12}};
  MaxMin solver(links);
  std::vector<Route> routes(2);
  routes[0].add(0, 3);
  routes[1].add(0);
  routes[1].rate_max = 1.5;
  std::vector<Allotment> found(2);
  solver.solve(routes, found);
  EXPECT_DOUBLE_EQ(found[1].rate, 1.5);
  EXPECT_DOUBLE_EQ(found[0].rate, 3.5);
}

TEST(MaxMin, WeightOfAFlowCountsOnItsLinkOnly) {
  const std::array links{Link{12}, Link{2}};
  MaxMin solver(links);
  std::vector<Route> routes{over({0}), over({0}), over({1}), over({1})};
  routes[0].uses[0].weight = 2;
  std::vector<Allotment> found(4);
  solver.solve(routes, found);
  EXPECT_DOUBLE_EQ(found[0].rate, 8);
  EXPECT_DOUBLE_EQ(found[1].rate, 4);
  EXPECT_DOUBLE_EQ(found[2].rate, found[3].rate);
}

TEST(MaxMin, AcknowledgementsTakeAPartOfALinkAndAreNotLimitedByIt) {
  const std::array links{Link{10}, Link{100}};
  MaxMin solver(links);
  std::vector<Route> routes{over({0}), over({1})};
  routes[1].add_acks(0, 0.25);
  routes[1].rate_max = 20;
  std::vector<Allotment> found(2);
  solver.solve(routes, found);
  EXPECT_DOUBLE_EQ(found[0].rate, 8);   // both rates grow alike until the link is full
  EXPECT_DOUBLE_EQ(found[1].rate, 20);  // although link 0 is full
}

TEST(Fluid, BriefFlowsWaitInTheQueueOfLongFlows) {
  const std::array<Link, 1> links{{{.rate = 10, .cause = Cause::kUplink}}};
  const auto received = [&](double tolerated) {
    FlowSet set;
    Flow lasts{.route = over({0}), .bytes = 1e3, .packet_s = 0.1, .tolerated_s = tolerated};
    lasts.route.rate_max = 10;
    const uint32_t brief = set.add({.route = over({0}), .bytes = 1});
    set.add(lasts);
    return run_fluid(set, links)[brief].received_s;
  };
  // At half of its rate the long flow tolerates twice the delay; half of that is the usual queue.
  EXPECT_NEAR(received(4) - received(2), 2, 0.3);
}

TEST(Fluid, FlowsShareLinksAndWaitForOneAnother) {
  const std::array<Link, 1> links{{{.rate = 10, .cause = Cause::kNicOut}}};
  FlowSet set;
  const Flow flow{.route = over({0}), .bytes = 100, .delay_s = 1, .there_s = 2, .back_s = 3};
  const uint32_t first = set.add(flow);
  const uint32_t second = set.add(flow);
  const uint32_t third = set.add(flow);
  set.after_received(third, first);
  set.after_sent(third, second);
  const auto times = run_fluid(set, links);
  EXPECT_NEAR(times[first].received_s, 1 + 20 + 2, 1e-6);  // two share the link
  EXPECT_NEAR(times[third].ready_s, 1 + 20 + 5, 1e-6);     // the second is acknowledged
  EXPECT_NEAR(times[third].received_s, 26 + 1 + 10 + 2, 1e-6);
  const Terms terms = terms_until(times, third);
  EXPECT_NEAR(terms[static_cast<size_t>(Cause::kNicOut)], 30, 1e-6);
  EXPECT_NEAR(terms[static_cast<size_t>(Cause::kLatency)], 9, 1e-6);
}

// Where the rounding error of a time is longer than the remaining time.
TEST(Fluid, LateFlowsEnd) {
  const std::array<Link, 1> links{{{.rate = 7, .cause = Cause::kNicOut}}};
  FlowSet set;
  for (int i = 0; i < 20; ++i) set.add({.route = over({0}), .bytes = 1e7 + i, .delay_s = 1e6});
  for (const FlowTimes& one : run_fluid(set, links)) EXPECT_GT(one.received_s, 1e6 + 1e7 / 7);
}

Cluster single_gpus(uint32_t hosts, double gbps) {
  Cluster cluster;
  cluster.nic_kinds[0] = {.name = "plain",
                          .rate = bytes_per_s(gbps),
                          .efficiency = 1,
                          .first_share = 1,
                          .packet_overhead = 0,
                          .ack_bytes = 0};
  cluster.groups = {{.hosts = hosts, .gpus = 1, .nics = {0}}};
  return cluster;
}

TEST(Predict, LongRingRunsAtTheRateOfTheLinks) {
  const Collective what{.bytes = 1'000'000'000};
  const auto found = predict(single_gpus(8, 100), what, message_costs());
  EXPECT_NEAR(found.time_s, 2 * 7.0 / 8 * 1e9 / 12.5e9, 0.002 * found.time_s);
  EXPECT_NEAR(found.bus_rate, 12.5e9, 0.002 * found.bus_rate);
  EXPECT_TRUE(found.bottleneck == Cause::kNicOut || found.bottleneck == Cause::kNicIn);
}

TEST(Predict, ShortRingTakesTheLatencyOfItsSteps) {
  const auto found = predict(single_gpus(8, 100), {.bytes = 8}, message_costs());
  // 14 steps, each of two cables there and two back, less the last way back.
  EXPECT_NEAR(found.time_s, 14 * 4e-6 - 2e-6, 0.3e-6);
  EXPECT_EQ(found.bottleneck, Cause::kLatency);
}

TEST(Predict, OversubscribedCoreIsTheBottleneck) {
  Cluster cluster = single_gpus(32, 100);
  cluster.fabric.hosts_per_leaf = 8;
  cluster.fabric.oversubscription = 4;
  const Collective what{
      .operation = Operation::kAllToAll, .algorithm = Algorithm::kPairwise, .bytes = 320'000'000};
  const auto found = predict(cluster, what, message_costs());
  // 24 of 32 parts cross; a leaf's eight hosts share two cables.
  EXPECT_NEAR(found.time_s, 0.75 * 320e6 * 8 / (2 * 12.5e9 * 0.92), 0.01 * found.time_s);
  EXPECT_TRUE(found.bottleneck == Cause::kUplink || found.bottleneck == Cause::kDownlink);
}

// A send from a host whose slowest NIC has an index that the other host lacks.
TEST(Predict, HostsOnRailsMayHaveDifferentNumbersOfNics) {
  Cluster cluster = single_gpus(1, 400);
  cluster.nic_kinds.push_back(cluster.nic_kinds.front());
  cluster.nic_kinds.back().rate /= 2;
  cluster.groups = {{.hosts = 1, .gpus = 1, .nics = {0, 1}}, {.hosts = 1, .gpus = 1, .nics = {0}}};
  cluster.fabric.rails = true;
  cluster.fabric.hosts_per_leaf = 1;
  const Collective what{
      .operation = Operation::kSendRecv, .algorithm = Algorithm::kPairwise, .bytes = 1'000'000'000};
  EXPECT_GE(predict(cluster, what, message_costs()).time_s, 1e9 / 50e9);
}

TEST(Predict, LargeGroupsOfAHierarchicalCollectiveTakeTheTimeOfARing) {
  const Cluster cluster = single_gpus(256, 100);
  const auto time_of = [&](Algorithm algorithm, uint32_t group) {
    const Collective what{.algorithm = algorithm, .bytes = 1'000'000'000, .group = group};
    return predict(cluster, what, message_costs()).time_s;
  };
  EXPECT_NEAR(time_of(Algorithm::kHierarchical, 128), time_of(Algorithm::kRing, 0),
              0.02 * time_of(Algorithm::kRing, 0));
}

TEST(Predict, PlanOfSomeRepeatedStepsGivesTheSameTime) {
  const Cluster cluster = single_gpus(48, 100);
  const Collective what{.bytes = 48'000'000};
  const double all = predict(cluster, what, message_costs()).time_s;
  const double some = predict(cluster, what, message_costs(), {.flows = 1000}).time_s;
  EXPECT_NEAR(some, all, 0.01 * all);
}

TEST(Predict, JobsThatShareTheCoreSlowEachOtherDown) {
  Cluster cluster = single_gpus(16, 100);
  cluster.fabric.hosts_per_leaf = 8;
  cluster.fabric.oversubscription = 8;
  const Collective one{.bytes = 80'000'000, .hosts = {0, 8, 1, 9}};
  const Collective other{.bytes = 80'000'000, .hosts = {2, 10, 3, 11}};
  const double alone = predict(cluster, one, message_costs()).time_s;
  const auto both = predict_together(cluster, std::array{one, other}, message_costs());
  // The jobs' shares of the core differ, but the core stays full.
  const auto [first, last] = std::minmax(both[0], both[1]);
  EXPECT_NEAR(last, 2 * alone, 0.01 * alone);
  EXPECT_GT(first, 1.8 * alone);
}

TEST(Predict, EverySupportedChoiceHasATimeThatGrowsWithTheSize) {
  Cluster cluster;
  cluster.groups[0].hosts = 16;
  cluster.fabric.hosts_per_leaf = 4;
  const CostTable table(cluster);
  for (size_t i = 0; i < kOperations; ++i) {
    const auto operation = static_cast<Operation>(i);
    for (size_t j = 0; j < kAlgorithms; ++j) {
      const auto algorithm = static_cast<Algorithm>(j);
      double before = 0;
      for (Bytes bytes = 8; bytes <= Bytes{16} << 30; bytes *= 16) {
        const auto time = table.time_s(operation, algorithm, Protocol::kSimple, bytes);
        ASSERT_EQ(time.has_value(), supported(operation, algorithm));
        if (!time) break;
        EXPECT_GE(*time, before) << name_of(operation) << ' ' << name_of(algorithm) << ' ' << bytes;
        before = *time;
      }
    }
  }
}

// A little more than a chunk is sent as two pieces, one after the other along the chain.
TEST(Predict, CostTableFollowsJumpsOfTheTime) {
  const Cluster cluster = single_gpus(32, 25);
  const CostTable table(cluster);
  Collective what{.operation = Operation::kBroadcast, .protocol = Protocol::kLl};
  for (const Bytes bytes : {16'000U, 16'384U, 16'385U, 17'000U, 40'000U, 50'000U, 100'000U}) {
    what.bytes = bytes;
    const double exact = predict(cluster, what, nccl_costs(), CostTable::kQuick).time_s;
    EXPECT_NEAR(*table.time_s(what.operation, what.algorithm, what.protocol, bytes), exact,
                0.01 * exact)
        << bytes;
  }
}

TEST(Predict, ManyHostsAreRepresentedByFew) {
  Cluster cluster;
  cluster.groups[0].hosts = 12'500;
  cluster.groups[0].nics.assign(8, 0);
  cluster.fabric.hosts_per_leaf = 32;
  EXPECT_EQ(ranks_of(cluster, {}), 100'000U);
  Collective what{.algorithm = Algorithm::kTree, .bytes = Bytes{16} << 30};
  const auto tree = predict(cluster, what);
  EXPECT_GT(tree.bus_rate, 0.7 * 8 * bytes_per_s(400));
  EXPECT_LE(tree.bus_rate, 8 * bytes_per_s(400));
  what.algorithm = Algorithm::kRing;  // 199,998 steps
  EXPECT_EQ(predict(cluster, what).bottleneck, Cause::kLatency);
}

}  // namespace
}  // namespace pacecar::predict::predict_test
