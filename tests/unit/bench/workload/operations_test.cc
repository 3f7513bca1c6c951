// Workloads that repeat, in messages of a bounded size.
#include "bench/workload/operations.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "bench/workload/workload_spec.h"

namespace pacecar::operations_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Workload make(WorkloadSpec spec, uint32_t hosts) {
  auto workload = make_workload(spec, hosts, 1);
  EXPECT_TRUE(workload) << workload.error().message;
  return workload ? *std::move(workload) : Workload{};
}

// Plays a workload in which each message takes a second of virtual time, and all that may be under
// way is. Returns the second in which each flow starts; -1: never.
std::vector<int> seconds_of(const Workload& workload) {
  std::vector<int> starts(workload.flows.size(), -1);
  std::vector<uint32_t> fired(workload.triggers.size(), 0);
  std::vector<size_t> now;
  for (size_t i = 0; i < workload.flows.size(); ++i) {
    if (workload.flows[i].trigger == kNoTrigger) now.push_back(i);
  }
  for (int second = 0; !now.empty(); ++second) {
    for (const size_t i : now) starts[i] = second;
    std::vector<uint32_t> fires;
    for (const size_t i : now) {
      const WorkloadFlow& flow = workload.flows[i];
      fires.insert(fires.end(), flow.on_sent.begin(), flow.on_sent.end());
      fires.insert(fires.end(), flow.on_received.begin(), flow.on_received.end());
    }
    now.clear();
    for (const uint32_t trigger : fires) {
      if (++fired[trigger] != workload.triggers[trigger].count) continue;
      for (size_t i = 0; i < workload.flows.size(); ++i) {
        if (workload.flows[i].trigger == trigger) now.push_back(i);
      }
    }
  }
  return starts;
}

TEST(InSlices, FlowIsCutIntoMessagesOfTheSizeAndARest) {
  const Workload pairs = make({.kind = "pairs", .slice = 1000, .bytes = 2500}, 2);
  std::vector<Bytes> sizes;
  for (const WorkloadFlow& flow : pairs.flows) sizes.push_back(flow.bytes);
  EXPECT_THAT(sizes, ElementsAre(1000, 1000, 500));
  EXPECT_THAT(seconds_of(pairs), ElementsAre(0, 0, 0)) << "all may be under way";
}

TEST(InSlices, AtMostEightMessagesOfAFlowAreUnderWay) {
  const Workload pairs = make({.kind = "pairs", .slice = 1, .bytes = 20}, 2);
  std::vector<int> expected(20);
  for (int i = 0; i < 20; ++i) expected[static_cast<size_t>(i)] = i / 8;
  EXPECT_EQ(seconds_of(pairs), expected);
}

TEST(InSlices, RingForwardsSliceBySlice) {
  const Workload whole = make({.kind = "ring_all_reduce", .bytes = 16}, 2);
  const Workload cut = make({.kind = "ring_all_reduce", .slice = 2, .bytes = 16}, 2);
  ASSERT_EQ(whole.flows.size(), 4U);
  ASSERT_EQ(cut.flows.size(), 16U);
  EXPECT_THAT(seconds_of(whole), ElementsAre(0, 0, 1, 1));
  const std::vector<int> starts = seconds_of(cut);
  for (size_t i = 0; i < starts.size(); ++i) EXPECT_EQ(starts[i], i < 8 ? 0 : 1) << i;
  // Only the first slices of the first step have arrived: the first of the second step start.
  std::vector<uint32_t> first_fires = cut.flows[0].on_sent;
  first_fires.insert(first_fires.end(), cut.flows[0].on_received.begin(),
                     cut.flows[0].on_received.end());
  for (const uint32_t trigger : first_fires) {
    const auto waits = [&](const WorkloadFlow& flow) { return flow.trigger == trigger; };
    const auto found = std::ranges::find_if(cut.flows, waits);
    ASSERT_NE(found, cut.flows.end());
    EXPECT_EQ((found - cut.flows.begin()) % 4, 0) << "the first of its flow";
  }
}

TEST(InSlices, EveryKindStillStartsAndCarriesItsBytes) {
  for (const char* kind : {"incast", "all_to_all", "tree_all_reduce", "hierarchical_all_reduce",
                           "pipeline", "all_gather", "ring_broadcast"}) {
    const auto of = [&](Bytes slice) {
      return make({.kind = kind, .slice = slice, .bytes = 10'000, .hosts_per_server = 2}, 4);
    };
    const auto bytes = [](const Workload& workload) {
      return std::accumulate(workload.flows.begin(), workload.flows.end(), Bytes{0},
                             [](Bytes sum, const WorkloadFlow& flow) { return sum + flow.bytes; });
    };
    const Workload cut = of(300);
    EXPECT_EQ(bytes(cut), bytes(of(0))) << kind;
    EXPECT_FALSE(never_starting_flow(cut).has_value()) << kind;
    EXPECT_EQ(std::ranges::count(seconds_of(cut), -1), 0) << kind;
  }
}

TEST(InSlices, FlowsThatStartOneByOneAreRefused) {
  Workload some{.hosts = 2,
                .flows = {{.source = 0, .destination = 1, .bytes = 9, .trigger = 0}},
                .triggers = {{.kind = WorkloadTrigger::Kind::kMultiShot}}};
  EXPECT_THAT(in_slices(some, 4).error().message, HasSubstr("leave out slice"));
}

TEST(Repeated, OperationBeginsWhenBothHostsAreDoneWithTheLast) {
  const Workload thrice =
      make({.kind = "incast", .operations = 3, .pause = Duration::from_ms(60), .bytes = 9}, 4);
  ASSERT_EQ(thrice.flows.size(), 9U);
  EXPECT_THAT(seconds_of(thrice), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2));
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(thrice.flows[i].operation, i / 3);
    EXPECT_EQ(thrice.flows[i].start, Duration::from_ms(i < 3 ? 0 : 60));
  }
  // The receiver is done when all three have arrived, a sender when its own is acknowledged.
  EXPECT_EQ(thrice.triggers[thrice.flows[3].trigger].count, 4U);
}

TEST(Repeated, OperationWithSlicesRepeatsWithItsTriggers) {
  const Workload some =
      make({.kind = "ring_all_reduce", .operations = 4, .slice = 100, .bytes = 3000}, 3);
  EXPECT_FALSE(never_starting_flow(some).has_value());
  const std::vector<int> starts = seconds_of(some);
  const size_t each = starts.size() / 4;
  for (size_t operation = 1; operation < 4; ++operation) {
    const auto* const begin = starts.data() + operation * each;
    EXPECT_GT(*std::min_element(begin, begin + each), *std::max_element(begin - each, begin) - 1);
  }
}

}  // namespace
}  // namespace pacecar::operations_test
