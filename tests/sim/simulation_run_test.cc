// Whole runs: the production stack on a simulated fabric.
#include <gmock/gmock.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/sim/metrics.h"
#include "bench/sim/result_json.h"
#include "bench/sim/run.h"
#include "bench/sim/spec_file.h"
#include "bench/sim/spec_reader.h"
#include "bench/sim/spec_value.h"
#include "bench/workload/workload_spec.h"
#include "transport/softnic/config.h"

namespace pacecar::simulation_run_test {
namespace {

using testing::HasSubstr;

RunSpec spec_of(const std::string& text, uint64_t seed = 1) {
  const auto file = parse_spec(text, "test.toml");
  EXPECT_TRUE(file.has_value()) << file.error().message;
  auto spec = make_run_spec(*file->table(), "", seed);
  EXPECT_TRUE(spec.has_value()) << spec.error().message;
  return *spec;
}

RunResult run_of(const RunSpec& spec) {
  auto result = run_experiment(spec);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result.value_or(RunResult{});
}

const std::string kTwoHosts = "[topology]\nkind = \"star\"\nhosts = 2\nrate = \"100G\"\n";
const std::string kLeafSpine = "[topology]\nhosts = 16\nrate = \"100G\"\n";

std::string json_of(RunResult run) {
  run.wall_seconds = 0;
  return to_json(run).dump();
}

class SimulationOneFlow : public testing::TestWithParam<Bytes> {};

// A single flow takes the time of its packets on the cables.
TEST_P(SimulationOneFlow, FlowTakesTheTimeOfItsPackets) {
  RunSpec spec = spec_of(kLeafSpine + "[transport]\ncc = \"fixed\"\n[workload]\nkind = \"pairs\"");
  spec.workload.flows.resize(1);
  spec.workload.flows[0] = {.source = 0, .destination = 15, .bytes = GetParam()};
  const RunResult run = run_of(spec);
  ASSERT_TRUE(run.complete);
  const FlowResult& flow = run.flows[0];
  EXPECT_EQ(flow.start, Duration());
  // At most two control words of 10 ns each share the cables; every hop rounds up by less than 1
  // ns.
  EXPECT_GE(flow.finish, flow.ideal);
  EXPECT_LE(flow.finish, flow.ideal + Duration::from_ns(2 * 10 + 8));
  EXPECT_EQ(run.fabric.all_dropped(), 0U);
  EXPECT_EQ(run.nics.packets_retransmitted, 0U);
}

INSTANTIATE_TEST_SUITE_P(Sizes, SimulationOneFlow,
                         testing::Values(1, 4096, 4097, 100'000, 1'000'000, 20'000'000));

TEST(SimulationRun, SameSpecGivesTheSameRun) {
  const std::string text =
      kLeafSpine +
      "[workload]\nkind = \"random_flows\"\nload = 0.6\nlength = \"100us\"\nsizes = \"FB_Hadoop\"";
  const RunResult once = run_of(spec_of(text, 5));
  const RunResult again = run_of(spec_of(text, 5));
  EXPECT_EQ(once.trace_hash, again.trace_hash);
  EXPECT_EQ(json_of(once), json_of(again));
  EXPECT_NE(once.trace_hash, run_of(spec_of(text, 6)).trace_hash);
}

TEST(SimulationRun, EveryPacketIsAccountedFor) {
  const RunResult run = run_of(
      spec_of(kLeafSpine + "[transport]\ncc = \"swift\"\n[fabric]\nqueue = \"20KB\"\n"
                           "[workload]\nkind = \"incast\"\nsenders = 12\nbytes = \"200KB\""));
  EXPECT_TRUE(run.complete);
  EXPECT_TRUE(run.fabric.conserved());
  EXPECT_GT(run.fabric.dropped_for(FabricDrop::kQueueFull), 0U);
  EXPECT_GT(run.nics.packets_retransmitted, 0U);
  EXPECT_LE(run.queue_max_bytes, 20'000U);
  EXPECT_GT(run.queue_p99_bytes, 0);
  Bytes received = 0;
  for (const FlowResult& flow : run.flows) received += flow.bytes;
  EXPECT_GE(run.nics.data_bytes_received, received);
}

class SimulationSmoke : public testing::TestWithParam<std::tuple<std::string_view, size_t>> {};

const std::map<std::string_view, std::string> kSmallTopologies = {
    {"leaf-spine", "hosts = 8\nhosts_per_leaf = 4"},
    {"fat-tree", "radix = 4"},
    {"rail", "servers = 4\ngpus_per_server = 2"},
    {"dual-port", "hosts = 8\nhosts_per_leaf = 4"},
    {"dumbbell", "left = 4\nright = 4"},
    {"star", "hosts = 8"},
};

std::string small_workload(std::string_view kind) {
  if (kind == "mixture") {
    return "[[workload.job]]\nname = \"a\"\nkind = \"incast\"\nbytes = 9000\nhosts = [0, 1, 2]\n"
           "[[workload.job]]\nname = \"b\"\nkind = \"pairs\"\nbytes = 9000\nhosts = [4, 5, 6, 7]\n";
  }
  std::string text = "[workload]\nhosts = 8\nkind = \"" + std::string(kind) + "\"\n";
  if (kind == "random_flows") {  // several flows may have the same destination
    return text + "sizes = \"FB_Hadoop\"\nlength = \"200us\"\n[fabric]\nqueue = \"8MiB\"\n";
  }
  if (kind == "hierarchical_all_reduce") text += "hosts_per_server = 4\n";
  return text + "bytes = \"20KB\"\n";
}

TEST_P(SimulationSmoke, SmallRunCompletes) {
  const auto [topology, workload] = GetParam();
  const std::string_view kind = workload_kinds()[workload].name;
  const RunResult run =
      run_of(spec_of("[topology]\nkind = \"" + std::string(topology) + "\"\n" +
                     kSmallTopologies.at(topology) + "\n" + small_workload(kind)));
  EXPECT_TRUE(run.complete) << topology << " " << kind;
  EXPECT_EQ(run.fabric.all_dropped(), 0U);
  EXPECT_LT(metric_value(run, "slowdown_max").value(), 1000);
  EXPECT_GE(metric_value(run, "slowdown_p50").value(), 0.99);
}

std::string smoke_name(const testing::TestParamInfo<std::tuple<std::string_view, size_t>>& info) {
  std::string name = std::string(std::get<0>(info.param)) + "_" +
                     std::string(workload_kinds()[std::get<1>(info.param)].name);
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, SimulationSmoke,
                         testing::Combine(testing::ValuesIn(names_of(topology_kinds())),
                                          testing::Range(size_t{0}, workload_kinds().size())),
                         smoke_name);

// Each flow starts in the instant of its trigger: one-shot, barrier of two, multi-shot.
TEST(SimulationRun, TriggersStartFlowsInTheSameInstant) {
  RunSpec spec = spec_of(kLeafSpine);
  spec.workload.triggers = {{.kind = WorkloadTrigger::Kind::kOneShot},
                            {.kind = WorkloadTrigger::Kind::kBarrier, .count = 2},
                            {.kind = WorkloadTrigger::Kind::kMultiShot}};
  spec.workload.flows = {
      {.source = 0, .destination = 1, .bytes = 50'000, .on_received = {0, 2}},
      {.source = 1, .destination = 2, .bytes = 1000, .trigger = 0, .on_sent = {1}},
      {.source = 3,
       .destination = 4,
       .bytes = 90'000,
       .start = Duration::from_us(1),
       .on_sent = {1, 2}},
      {.source = 5, .destination = 6, .bytes = 500, .trigger = 1},
      {.source = 7, .destination = 8, .bytes = 500, .trigger = 2},
      {.source = 7, .destination = 8, .bytes = 600, .start = Duration::from_us(3), .trigger = 2}};
  const RunResult run = run_of(spec);
  ASSERT_TRUE(run.complete);
  const auto& flows = run.flows;
  EXPECT_EQ(flows[1].start, flows[0].received);
  EXPECT_EQ(flows[2].start, Duration::from_us(1));
  EXPECT_EQ(flows[3].start, std::max(flows[1].finish, flows[2].finish));
  EXPECT_EQ(flows[4].start, flows[0].received);
  EXPECT_EQ(flows[5].start, flows[2].finish + Duration::from_us(3));
  for (const FlowResult& flow : flows) EXPECT_LT(flow.received, flow.finish);
}

TEST(SimulationRun, PairMayHaveMoreFlowsThanItsConnectionHolds) {
  for (const char* posted : {"true", "false"}) {
    RunSpec spec = spec_of(kTwoHosts + "[transport]\nreceives_posted = " + posted + "\n[workload]");
    spec.workload.flows.clear();
    for (uint64_t i = 0; i < 700; ++i) {
      spec.workload.flows.push_back({.source = 0, .destination = 1, .bytes = 1 + i * 7, .id = i});
    }
    const RunResult run = run_of(spec);
    EXPECT_TRUE(run.complete) << posted;
  }
}

TEST(SimulationRun, LateReceivesDelayTheSenderByHalfARoundTrip) {
  const std::string text = kTwoHosts + "[workload]\nkind = \"pairs\"\nbytes = 1000\n[transport]\n";
  const Duration early = run_of(spec_of(text)).flows[0].finish;
  const Duration late = run_of(spec_of(text + "receives_posted = false")).flows[0].finish;
  EXPECT_GT(late, early + Duration::from_us(2));  // the CTS passes two cables of 1 us
}

TEST(SimulationRun, RunStopsAtItsTimeLimit) {
  const RunResult run = run_of(spec_of(
      kTwoHosts + "[workload]\nkind = \"pairs\"\nbytes = \"1GB\"\n[run]\ntime_limit = \"50us\""));
  EXPECT_FALSE(run.complete);
  EXPECT_EQ(run.duration, Duration::from_us(50));
  EXPECT_FALSE(run.flows[0].done());
  EXPECT_GT(run.fabric.in_flight, 0U);
}

TEST(SimulationRun, CablesMayBeLong) {
  const RunResult run = run_of(spec_of(
      "[topology]\nkind = \"star\"\nhosts = 3\ndelay = \"1s\"\n"
      "[workload]\nkind = \"incast\"\nsenders = 2\nbytes = \"10KB\"\n[run]\ntime_limit = \"20s\""));
  EXPECT_TRUE(run.complete);
}

TEST(SimulationRun, EachKindOfFaultTakesEffect) {
  const std::string flow = kLeafSpine +
                           "[workload]\nkind = \"pairs\"\nhosts = [0, 15]\n"
                           "bytes = \"1MB\"\n";
  const Duration alone = run_of(spec_of(flow)).flows[0].finish;
  const RunResult lossy = run_of(spec_of(
      flow + "[[fault]]\nkind = \"cable-loss\"\ncable = \"host 0 > leaf 0\"\nprobability = 0.01"));
  EXPECT_TRUE(lossy.complete);
  EXPECT_GT(lossy.fabric.dropped_for(FabricDrop::kLoss), 0U);
  EXPECT_GT(lossy.nics.packets_retransmitted, 0U);
  const RunResult everywhere =
      run_of(spec_of(flow + "[[fault]]\nkind = \"packet-loss\"\nprobability = 0.05"));
  EXPECT_TRUE(everywhere.complete);
  EXPECT_GT(everywhere.fabric.dropped_for(FabricDrop::kLoss), 20U);
  const RunResult slow = run_of(spec_of(
      flow + "[[fault]]\nkind = \"cable-rate\"\ncable = \"host 0 > leaf 0\"\nrate = \"10G\""));
  EXPECT_TRUE(slow.complete);
  EXPECT_GT(slow.flows[0].finish, alone * 8);
  const RunResult frozen = run_of(spec_of(
      flow + "[[fault]]\nkind = \"host-frozen\"\nhost = 15\nat = \"20us\"\nlength = \"1ms\""));
  EXPECT_TRUE(frozen.complete);
  EXPECT_GT(frozen.flows[0].finish, Duration::from_us(1020));
  const RunResult down = run_of(spec_of(
      flow + "[[fault]]\nkind = \"cable-down\"\nat = \"20us\"\ncable = \"leaf 0 > spine 0\""));
  EXPECT_TRUE(down.complete);  // traffic takes the other spines
  const RunResult cut =
      run_of(spec_of(
          flow + "[[fault]]\nkind = \"cable-down\"\nat = \"20us\"\ncable = \"host 0 > leaf 0\"\n"
                 "[run]\ntime_limit = \"20ms\""));
  EXPECT_FALSE(cut.complete);
}

// Without a later packet, no acknowledgement shows the loss: all first packets of a flow are lost,
// or its last ones.
TEST(SimulationRun, TailLossesAreRepairedBeforeTheMinimalProbeTimeout) {
  const RunResult run = run_of(
      spec_of("[topology]\nkind = \"leaf-spine\"\nhosts = 16\nhosts_per_leaf = 4\nspines = 1\n"
              "rate = \"100G\"\n[workload]\nkind = \"all_to_all\"\nbytes = \"32KB\"\n"
              "parallel = 8"));
  ASSERT_TRUE(run.complete);
  EXPECT_GT(run.fabric.all_dropped(), 0U);
  for (const FlowResult& flow : run.flows) EXPECT_LT(flow.finish, LossRecovery().min_probe);
}

// Credit is repeated until it arrives.
TEST(SimulationRun, LostCreditWordsAreRepeated) {
  const RunResult run =
      run_of(spec_of(kLeafSpine +
                     "[transport]\ncc = \"rccc\"\n[workload]\nkind = \"incast\"\nsenders = 4\n"
                     "[[fault]]\nkind = \"word-loss\"\nprobability = 0.3"));
  EXPECT_TRUE(run.complete);
  EXPECT_GT(run.fabric.dropped_for(FabricDrop::kLoss), 0U);
}

TEST(SimulationRun, ALossOfWordsCanBeEnded) {
  const auto words_lost = [](const std::string& faults) {
    return run_of(spec_of(kLeafSpine +
                          "[transport]\ncc = \"rccc\"\n[workload]\nkind = \"incast\"\n"
                          "senders = 4\n" +
                          faults))
        .fabric.dropped_for(FabricDrop::kLoss);
  };
  const std::string all = "[[fault]]\nkind = \"word-loss\"\nprobability = 0.9\n";
  const std::string none = "[[fault]]\nkind = \"word-loss\"\nprobability = 0\nat = \"1us\"\n";
  EXPECT_LT(words_lost(all + none), words_lost(all) / 10);
}

// Two tenants, of which only one obeys the receiver's credit.
TEST(SimulationRun, ReceiverServesSendersThatIgnoreCredit) {
  const RunResult run = run_of(
      spec_of(kLeafSpine +
              "[transport]\ncc = \"rccc\"\n[fabric]\ntrimming = true\n"
              "[[workload.job]]\nname = \"a\"\nkind = \"incast\"\nsenders = 2\n"
              "hosts = [0, 5, 6]\n"
              "[[workload.job]]\nname = \"b\"\nkind = \"incast\"\nsenders = 2\ncc = \"nscc\"\n"
              "hosts = [0, 9, 10]"));
  EXPECT_TRUE(run.complete);
  EXPECT_GT(metric_value(run, "share@a").value(), 0.2);
  EXPECT_GT(metric_value(run, "share@b").value(), 0.2);
}

// At a quarter of the line rate, packets leave one by one or four at a time. Four queue up at a
// slower link. The flow's first burst is over after the warm-up.
TEST(SimulationRun, PacketsOfABurstLeaveTogether) {
  const std::string quarter =
      "[topology]\nkind = \"star\"\nhosts = 2\nrate = \"100G\"\n"
      "[[fault]]\nkind = \"cable-rate\"\ncable = \"switch 0 > host 1\"\nrate = \"50G\"\n"
      "[run]\nwarm_up = \"50us\"\n"
      "[workload]\nkind = \"pairs\"\nbytes = \"400KB\"\n"
      "[transport]\ncc = \"fixed\"\nrate_max = \"25G\"\nmtu = 4000\n";
  const RunResult smooth = run_of(spec_of(quarter));
  const RunResult bursty = run_of(spec_of(quarter + "burst = 16000"));
  EXPECT_LT(smooth.queue_warm_max_bytes, 4300U);
  EXPECT_GT(bursty.queue_warm_max_bytes, 8000U);
  EXPECT_GT(smooth.queue_max_bytes, smooth.queue_warm_max_bytes);
}

TEST(SimulationRun, JobsMayUseDifferentAlgorithms) {
  const RunResult run = run_of(
      spec_of(kLeafSpine + "[transport]\ncc = \"swift\"\n"
                           "[[workload.job]]\nname = \"a\"\nkind = \"pairs\"\nhosts = [0, 5]\n"
                           "[[workload.job]]\nname = \"b\"\nkind = \"pairs\"\ncc = \"fixed\"\n"
                           "hosts = [1, 6]"));
  EXPECT_TRUE(run.complete);
  EXPECT_EQ(run.jobs, (std::vector<std::string>{"a", "b"}));
}

TEST(SimulationRun, ImpossibleWorkloadsAreRefused) {
  RunSpec spec = spec_of(kTwoHosts + "[workload]\nkind = \"pairs\"");
  spec.workload.flows[0].destination = 7;
  EXPECT_THAT(run_experiment(spec).error().message, HasSubstr("hosts 0 to 1"));
  spec.workload.flows[0].destination = 0;
  EXPECT_THAT(run_experiment(spec).error().message, HasSubstr("no host sends to itself"));
  spec.workload.flows.clear();
  EXPECT_THAT(run_experiment(spec).error().message, HasSubstr("no flows"));
}

TEST(SimulationRun, SamplesAreBoundedAndCoverTheRun) {
  const RunResult run =
      run_of(spec_of(kLeafSpine +
                     "[workload]\nkind = \"incast\"\nsenders = 8\nbytes = \"500KB\"\n"
                     "[run]\nsample_points = 16\nsample_interval = \"1us\"\nsample_series = 3"));
  ASSERT_EQ(run.rates.size(), 3U);
  ASSERT_FALSE(run.queues.empty());
  EXPECT_LE(run.queues.size(), 3U);
  EXPECT_EQ(run.queues[0].name, "leaf 0 > host 0");
  EXPECT_LE(run.queues[0].values.size(), 16U);
  EXPECT_GE(run.queues[0].values.size(), 8U);
  const auto covered = run.queues[0].interval * static_cast<int64_t>(run.queues[0].values.size());
  EXPECT_GT(covered, run.duration - run.queues[0].interval * 2);
  // The samples add up to the flow's bytes, without those at the end.
  double bytes = 0;
  for (const double rate : run.rates[0].values) {
    bytes += rate * run.rates[0].interval.seconds() / 8;
  }
  EXPECT_GT(bytes, 250'000);
  EXPECT_LE(bytes, 500'001);
}

TEST(SimulationRun, SamplesOfASteadyFlowAreEquallySpacedWithAnOddNumberOfPoints) {
  const RunResult run =
      run_of(spec_of(kTwoHosts +
                     "[transport]\ncc = \"fixed\"\n[workload]\nkind = \"pairs\"\nbytes = \"10MB\"\n"
                     "[run]\nsample_points = 17\nsample_interval = \"1us\"\n"));
  const std::vector<double>& rates = run.rates.at(0).values;
  ASSERT_GE(rates.size(), 6U);
  const auto [least, most] = std::minmax_element(rates.begin() + 1, rates.end() - 2);
  EXPECT_GT(*least, 0.95 * *most) << "the middle of a transfer at a fixed rate";
}

// 1 MB from time 0 and 1 MB from 1 ms on, at 100 Gb/s: the link is idle most of the time, but
// hardly after a warm-up of 1 ms.
TEST(SimulationRun, UtilisationCountsFromTheEndOfTheWarmUp) {
  const std::string text = kTwoHosts +
                           "[transport]\ncc = \"fixed\"\n[workload]\nkind = \"pairs\"\n"
                           "bytes = \"1MB\"\n";
  RunSpec spec = spec_of(text);
  WorkloadFlow later = spec.workload.flows[0];
  later.start = Duration::from_ms(1);
  spec.workload.flows.push_back(later);
  const double whole = metric_value(run_of(spec), "utilisation_max").value();
  spec.sampling.warm_up = Duration::from_ms(1);
  const double warm = metric_value(run_of(spec), "utilisation_max").value();
  // A message takes 82.4 us on a cable and 86.7 us until its sender knows.
  EXPECT_NEAR(whole, 2 * 82.4 / 1086.7, 0.001);
  EXPECT_NEAR(warm, 82.4 / 86.7, 0.003);
}

TEST(SimulationRun, AlgorithmConstantsCanBeSet) {
  const std::string text = kLeafSpine +
                           "[workload]\nkind = \"incast\"\nsenders = 8\nbytes = \"500KB\"\n"
                           "[fabric]\necn = true\n[transport]\ncc = \"dcqcn\"\n";
  const RunResult usual = run_of(spec_of(text));
  const RunResult other = run_of(spec_of(text + "constants = {cut_period = 40}\n"));
  EXPECT_NE(usual.trace_hash, other.trace_hash);
}

TEST(SimulationRun, RunWritesTraceAndCapture) {
  const std::string trace = testing::TempDir() + "simulation.trace";
  const std::string pcap = testing::TempDir() + "simulation.pcap";
  RunSpec spec = spec_of(kTwoHosts + "[workload]\nkind = \"pairs\"\nbytes = 10000");
  spec.trace = trace;
  spec.pcap = pcap;
  spec.pcap_link = "host 0 > switch 0";
  run_of(spec);
  std::ifstream lines(trace);
  std::vector<std::string> events;
  for (std::string line; std::getline(lines, line);) {
    events.push_back(nlohmann::json::parse(line)["event"]);
  }
  std::erase(events, "rate");
  EXPECT_EQ(events, (std::vector<std::string>{"start", "received", "finish"}));
  EXPECT_GT(std::ifstream(pcap, std::ios::ate).tellg(), 10'000);
  std::remove(trace.c_str());
  std::remove(pcap.c_str());
  spec.trace = "/nowhere/x";
  EXPECT_THAT(run_experiment(spec).error().message, HasSubstr("/nowhere/x"));
}

TEST(SimulationRun, ProgressCallbackMayEndTheRun) {
  const RunSpec spec = spec_of(kLeafSpine + "[workload]\nkind = \"permutation\"\nbytes = \"4MB\"");
  double last = 0;
  int calls = 0;
  ASSERT_TRUE(run_experiment(spec, [&](const RunProgress& progress) {
                if (progress.building) return true;
                EXPECT_GE(progress.done, last);
                last = progress.done;
                ++calls;
                return true;
              }).has_value());
  EXPECT_GT(calls, 1);
  const auto ended = run_experiment(spec, [](const RunProgress& at) { return at.building; });
  ASSERT_TRUE(ended) << "the result up to then";
  EXPECT_TRUE(std::ranges::any_of(ended->flows, [](const auto& flow) { return !flow.done(); }));
}

TEST(SimulationRun, ProgressCallbackMayEndTheBuilding) {
  const RunSpec spec = spec_of(kLeafSpine + "[workload]\nkind = \"permutation\"\nbytes = \"4MB\"");
  const auto ended = run_experiment(spec, [](const RunProgress&) { return false; });
  EXPECT_THAT(ended.error().message, HasSubstr("before the run began"));
}

// Arrivals show no loss, so that the fabric's drops are found by the timeout alone.
TEST(SimulationRun, AnyReorderingWithDropsHasATimeout) {
  const RunResult result = run_experiment(spec_of(R"(
[topology]
kind = "star"
hosts = 9
rate = "100G"
[fabric]
queue = "50KB"
[workload]
kind = "incast"
senders = 8
bytes = "300KB"
[transport]
cc = "fixed"
reordering = "any")"))
                               .value();
  EXPECT_GT(result.fabric.all_dropped(), 0U);
  EXPECT_TRUE(result.complete);
}

}  // namespace
}  // namespace pacecar::simulation_run_test
