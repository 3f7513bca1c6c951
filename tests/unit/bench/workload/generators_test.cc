// Workloads by kind: flows, start times, placement on hosts, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "bench/workload/cm_file.h"
#include "bench/workload/flow_sizes.h"
#include "bench/workload/workload.h"
#include "bench/workload/workload_spec.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/workload_text.h"

namespace pacecar::generators_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The hosts of the all-to-all matrices for which results of other simulators are published.
const std::vector<uint32_t> kPublishedHosts = {
    103, 34, 59, 96,  19,  74, 98, 26,  5,  49,  21, 51,  39, 53,  43, 99, 50, 7,   65, 64,  58, 20,
    127, 6,  11, 42,  118, 60, 30, 13,  63, 105, 61, 120, 84, 121, 14, 2,  48, 0,   24, 100, 80, 41,
    106, 4,  75, 110, 78,  12, 52, 112, 79, 97,  31, 36,  8,  71,  67, 73, 38, 101, 88, 47};

Workload make(const WorkloadSpec& spec, uint32_t hosts, uint64_t seed = 1) {
  auto workload = make_workload(spec, hosts, seed);
  EXPECT_TRUE(workload) << workload.error().message;
  return workload ? *std::move(workload) : Workload{};
}

std::string why_not(const WorkloadSpec& spec, uint32_t hosts) {
  const auto workload = make_workload(spec, hosts, 1);
  return workload ? "it was made" : workload.error().message;
}

std::vector<std::string> pairs_of(const Workload& workload) {
  std::vector<std::string> list;
  for (const WorkloadFlow& flow : workload.flows) {
    list.push_back(std::to_string(flow.source) + ">" + std::to_string(flow.destination));
  }
  return list;
}

uint64_t fnv1a(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3U;
  return hash;
}

TEST(Workloads, WorkloadsMatchPublishedMatricesByteForByte) {
  std::vector<uint32_t> incast = {0};
  for (uint32_t host = 64; host < 96; ++host) incast.push_back(host);
  EXPECT_EQ(fnv1a(write_cm(make({.kind = "incast", .hosts = incast}, 128))), 0x618ecf84e054d526U);
  WorkloadSpec all{.kind = "all_to_all", .hosts = kPublishedHosts, .parallel = 1};
  EXPECT_EQ(fnv1a(write_cm(make(all, 128))), 0x7134273a5fc063a3U);
  all.parallel = 8;
  EXPECT_EQ(fnv1a(write_cm(make(all, 128))), 0x591557ea26bd3e8fU);
}

TEST(Workloads, PairsGoFromEvenToOddEntries) {
  const auto workload = make({.kind = "pairs", .hosts = {4, 1, 0, 3}, .bytes = 77}, 5);
  EXPECT_THAT(pairs_of(workload), ElementsAre("4>1", "0>3"));
  EXPECT_EQ(workload.hosts, 5U);
  EXPECT_EQ(workload.flows[1].bytes, 77U);
  EXPECT_EQ(workload.flows[1].id, 1U);
}

// With several processes per host, the processes of one index have a copy of the flows.
TEST(Workloads, EachProcessIndexHasACopyOfTheFlows) {
  const auto two = make_workload({.kind = "incast", .bytes = 1001, .senders = 2}, 3, 1, 2);
  ASSERT_TRUE(two.has_value()) << two.error().message;
  EXPECT_THAT(pairs_of(*two), ElementsAre("2>0", "4>0", "3>1", "5>1"));
  EXPECT_EQ(two->hosts, 6U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(two->flows[i].id, i);
    EXPECT_EQ(two->flows[i].bytes, 1001U);
  }
  WorkloadSpec some{.kind = "incast", .processes = {3, 1}, .split = true, .bytes = 1001};
  const auto split = make_workload(some, 2, 1, 4);
  ASSERT_TRUE(split.has_value()) << split.error().message;
  EXPECT_THAT(pairs_of(*split), ElementsAre("7>3", "5>1"));
  EXPECT_EQ(split->flows[0].bytes, 500U);
}

// Flows of a copy wait only for flows of that copy.
TEST(Workloads, CopiesHaveTheirOwnTriggers) {
  const WorkloadSpec ring{.kind = "ring_all_reduce", .bytes = 3000};
  const auto one = make_workload(ring, 3, 1);
  const auto three = make_workload(ring, 3, 1, 3);
  ASSERT_TRUE(one && three);
  EXPECT_EQ(three->flows.size(), 3 * one->flows.size());
  EXPECT_EQ(three->triggers.size(), 3 * one->triggers.size());
  EXPECT_FALSE(never_starting_flow(*three).has_value());
  std::vector<std::set<uint32_t>> places(three->triggers.size());
  for (const WorkloadFlow& flow : three->flows) {
    EXPECT_EQ(flow.source % 3, flow.destination % 3);
    if (flow.trigger != kNoTrigger) places[flow.trigger].insert(flow.source % 3);
    for (const uint32_t trigger : flow.on_sent) places[trigger].insert(flow.source % 3);
    for (const uint32_t trigger : flow.on_received) places[trigger].insert(flow.source % 3);
  }
  for (const auto& place : places) EXPECT_EQ(place.size(), 1U);
}

TEST(Workloads, IncastStaggersItsSenders) {
  const auto workload = make({.kind = "incast",
                              .start = Duration::from_us(5),
                              .senders = 2,
                              .receivers = 2,
                              .stagger = Duration::from_us(1)},
                             8);
  EXPECT_THAT(pairs_of(workload), ElementsAre("2>0", "3>0", "4>1", "5>1"));
  EXPECT_EQ(workload.flows[2].start, Duration::from_us(5));
  EXPECT_EQ(workload.flows[3].start, Duration::from_us(6));
  EXPECT_EQ(make({.kind = "incast"}, 129).flows.size(), 128U);
}

TEST(Workloads, SeedDeterminesTheFlows) {
  const WorkloadSpec spec{.kind = "permutation", .hosts_per_leaf = 4};
  EXPECT_EQ(pairs_of(make(spec, 64, 1)), pairs_of(make(spec, 64, 1)));
  EXPECT_NE(pairs_of(make(spec, 64, 1)), pairs_of(make(spec, 64, 2)));
  const WorkloadSpec ring{.kind = "ring_all_reduce", .shuffle = true};
  EXPECT_EQ(pairs_of(make(ring, 16, 1)), pairs_of(make(ring, 16, 1)));
  EXPECT_NE(pairs_of(make(ring, 16, 1)), pairs_of(make(ring, 16, 2)));
}

TEST(Workloads, RandomFlowsHaveTheConfiguredLoad) {
  const WorkloadSpec spec{.kind = "random_flows",
                          .sizes = "FB_Hadoop",
                          .load = 0.6,
                          .rate = Rate::from_gbps(100),
                          .length = Duration::from_ms(50)};
  const auto workload = make(spec, 16);
  double bytes = 0;
  double small = 0;
  Duration last;
  for (const WorkloadFlow& flow : workload.flows) {
    EXPECT_NE(flow.source, flow.destination);
    EXPECT_GE(flow.start, last);
    last = flow.start;
    bytes += static_cast<double>(flow.bytes);
    small += flow.bytes <= 1000 ? 1 : 0;
  }
  EXPECT_LT(last, spec.length);
  const double capacity = 16.0 * 100e9 / 8 * 0.05;
  EXPECT_NEAR(bytes / capacity, 0.6, 0.03);
  EXPECT_NEAR(small / static_cast<double>(workload.flows.size()), 0.6, 0.01);
}

TEST(FlowSizes, InterpolateBetweenTheirPoints) {
  const auto sizes = FlowSizes::make("1000 50\n3000 50 # a step\n4000 100\n");
  ASSERT_TRUE(sizes) << sizes.error().message;
  EXPECT_EQ(sizes->at(0), 1U);
  EXPECT_EQ(sizes->at(0.25), 501U);
  EXPECT_EQ(sizes->at(0.5), 3000U);
  EXPECT_EQ(sizes->at(0.75), 3500U);
  EXPECT_DOUBLE_EQ(sizes->mean(), 0.5 * 500.5 + 0.5 * 3500);
  EXPECT_NEAR(FlowSizes::make("WebSearch")->mean(), 1.7e6, 0.1e6);
}

TEST(FlowSizes, ErrorNamesTheLine) {
  EXPECT_EQ(FlowSizes::make("WebSurf").error().message,
            "sizes of flows: line 1 begins with 'WebSurf'; write 'bytes percent' in each line, or "
            "one of the names WebSearch and FB_Hadoop");
  EXPECT_THAT(FlowSizes::make("100 50\n90 100").error().message,
              HasSubstr("line 2 is below the line before it"));
  EXPECT_THAT(FlowSizes::make("100 50").error().message, HasSubstr("does not reach 100 percent"));
  EXPECT_THAT(FlowSizes::make("100 nan").error().message, HasSubstr("line 1"));
}

TEST(Workloads, JobsOfAMixtureHaveDifferentNames) {
  WorkloadSpec spec{.kind = "mixture"};
  spec.jobs = {{.kind = "incast"}, {.kind = "incast"}, {.kind = "incast"}};
  std::vector<std::string> names;
  for (const WorkloadJob& job : make(spec, 6).jobs) names.push_back(job.name);
  EXPECT_EQ(names, (std::vector<std::string>{"incast", "incast-2", "incast-3"}));
  spec.jobs.back().name = "incast";
  EXPECT_THAT(make_workload(spec, 6, 1).error().message, HasSubstr("two jobs are called 'incast'"));
}

TEST(Workloads, MixturesKeepJobsApart) {
  WorkloadSpec spec{.kind = "mixture"};
  spec.jobs = {{.kind = "ring_all_reduce", .name = "training", .hosts = {0, 2, 4}},
               {.kind = "all_to_all",
                .congestion_control = "dcqcn",
                .hosts = {1, 3, 5},
                .start = Duration::from_us(9),
                .parallel = 1}};
  const auto workload = make(spec, 6);
  ASSERT_EQ(workload.jobs.size(), 2U);
  EXPECT_EQ(workload.jobs[0].name, "training");
  EXPECT_EQ(workload.jobs[1].name, "all_to_all");
  EXPECT_EQ(workload.jobs[1].congestion_control, "dcqcn");
  EXPECT_EQ(workload.triggers.size(), 9U + 3U);
  ASSERT_EQ(workload.flows.size(), 12U + 6U);
  EXPECT_FALSE(never_starting_flow(workload));
  for (size_t i = 0; i < workload.flows.size(); ++i) {
    const WorkloadFlow& flow = workload.flows[i];
    EXPECT_EQ(flow.id, i);
    EXPECT_EQ(flow.job, flow.source % 2);
    EXPECT_EQ(flow.destination % 2, flow.source % 2);
    const bool late = flow.trigger == kNoTrigger && flow.job == 1;
    EXPECT_EQ(flow.start, Duration::from_us(late ? 9 : 0));
  }
}

TEST(Workloads, FlowsOfAFileArePlacedOnTheHostsOfTheSpec) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch.path() / "placed.cm";
  std::ofstream(path) << "Nodes 2\n1->0 id 7 start 0 size 5\n";
  const auto workload = make({.kind = "file", .hosts = {3, 6}, .file = path}, 8);
  EXPECT_THAT(pairs_of(workload), ElementsAre("6>3"));
  EXPECT_EQ(workload.flows[0].id, 7U);
  std::ofstream(path) << "Nodes 9\n1->0 id 7 start 0 size 5\n";
  EXPECT_THAT(why_not({.kind = "file", .file = path}, 8),
              HasSubstr("has flows between 9 hosts, but 8 take part"));
}

TEST(Workloads, ErrorNamesWhatDoesNotFit) {
  EXPECT_THAT(why_not({.kind = "pairs", .hosts = {1, 1}}, 8), HasSubstr("host 1 twice"));
  EXPECT_THAT(why_not({.kind = "pairs", .hosts = {0, 1, 2}}, 8), HasSubstr("even number"));
  EXPECT_THAT(why_not({.kind = "pairs", .hosts = {1}}, 8), HasSubstr("1 hosts take part"));
  EXPECT_THAT(why_not({.kind = "pairs", .bytes = 0}, 8), HasSubstr("bytes is 0"));
  EXPECT_EQ(why_not({.kind = "incast", .senders = 8}, 8),
            "workload incast: 8 hosts are enough for 7 senders per receiver; lower senders (8) or "
            "receivers (1), or let more hosts take part");
  EXPECT_THAT(why_not({.kind = "incast", .receivers = 9}, 8), HasSubstr("enough for 0 senders"));
  EXPECT_THAT(why_not({.kind = "permutation", .hosts_per_leaf = 8}, 12),
              HasSubstr("another host for each of the 8 hosts of one leaf, but only 4"));
  EXPECT_THAT(why_not({.kind = "random_flows", .length = Duration::from_s(9999)}, 8),
              HasSubstr("shorten the length"));
  EXPECT_THAT(why_not({.kind = "random_flows", .sizes = "9"}, 8), HasSubstr("line 1"));
  EXPECT_THAT(why_not({.kind = "ring_all_reduce", .bytes = 7}, 8),
              HasSubstr("7 bytes cannot be cut into 8 parts"));
  EXPECT_THAT(why_not({.kind = "ring_all_reduce"}, 8192), HasSubstr("stay below 10000000"));
  EXPECT_THAT(why_not({.kind = "hierarchical_all_reduce"}, 12),
              HasSubstr("12 hosts do not make up several servers of 8"));
  EXPECT_THAT(why_not({.kind = "mixture"}, 8), HasSubstr("it has no jobs"));
}

TEST(WorkloadFacts, BusiestHostIsTheReceiverOfAnIncast) {
  EXPECT_EQ(busiest_host_bytes(make({.kind = "incast", .bytes = 10}, 8)), 70U);
}

}  // namespace
}  // namespace pacecar::generators_test
