// Metrics of a run whose flows are given by hand.
#include "bench/sim/metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/sim/result_json.h"
#include "bench/sim/spec_file.h"
#include "bench/sim/summary.h"

namespace pacecar::metrics_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

FlowResult flow(Bytes bytes, int64_t start_us, int64_t finish_us, int64_t ideal_us,
                uint32_t job = 0) {
  return {.id = bytes,
          .destination = 1,
          .job = job,
          .bytes = bytes,
          .start = Duration::from_us(start_us),
          .received = Duration::from_us(finish_us - 1),
          .finish = Duration::from_us(finish_us),
          .ideal = Duration::from_us(ideal_us)};
}

// Completion times 10, 20, 30, 40 us; slowdowns 1, 2, 3, 2.
RunResult known() {
  RunResult run;
  run.jobs = {"a", "b"};
  run.flows = {flow(5'000, 0, 10, 10), flow(50'000, 0, 20, 10), flow(500'000, 10, 40, 10, 1),
               flow(2'000'000, 10, 50, 20, 1)};
  run.queue_max_bytes = 1234;
  run.fabric.trimmed = 7;
  run.fabric.dropped[static_cast<size_t>(FabricDrop::kQueueFull)] = 3;
  run.fabric.dropped[static_cast<size_t>(FabricDrop::kLoss)] = 4;
  run.wall_seconds = 1;
  return run;
}

double value(const RunResult& run, std::string_view name) {
  const auto found = metric_value(run, name);
  EXPECT_TRUE(found.has_value()) << name;
  return found.value_or(-1);
}

TEST(SimulationMetrics, FlowMetricsMatchHandComputedValues) {
  const RunResult run = known();
  EXPECT_EQ(value(run, "finish_us"), 50);
  EXPECT_EQ(value(run, "first_finish_us"), 10);
  EXPECT_EQ(value(run, "fct_mean_us"), 25);
  EXPECT_EQ(value(run, "fct_p50_us"), 20);
  EXPECT_EQ(value(run, "fct_p99_us"), 40);
  EXPECT_EQ(value(run, "slowdown_max"), 3);
  EXPECT_EQ(value(run, "slowdown_p50"), 2);
  EXPECT_EQ(value(run, "slowdown_p99_short"), 1);
  EXPECT_EQ(value(run, "slowdown_p99_medium"), 3);
  EXPECT_EQ(value(run, "slowdown_p99_long"), 2);
  EXPECT_EQ(value(run, "flows_done"), 4);
  // 2,555,000 bytes in 49 us.
  EXPECT_NEAR(value(run, "goodput_gbps"), 2555e3 * 8 / 49e3, 1e-9);
  // Rates 500, 2500, 16667, 50000 bytes per us.
  const double sum = 500 + 2500 + 50000.0 / 3 + 50000;
  const double squares = 500.0 * 500 + 2500.0 * 2500 + 25e8 / 9 + 25e8;
  EXPECT_NEAR(value(run, "jain"), sum * sum / (4 * squares), 1e-12);
}

TEST(SimulationMetrics, FctSpreadComparesFlowsOfOneSize) {
  RunResult run = known();
  EXPECT_EQ(value(run, "fct_spread"), 1);  // every flow is alone with its size
  run.flows.push_back(flow(500'000, 0, 45, 10));
  run.flows.push_back(flow(50'000, 0, 26, 10));
  EXPECT_DOUBLE_EQ(value(run, "fct_spread"), 1.5);  // 45 and 30 us; 26 and 20
  run.flows.push_back(flow(5'000, 0, 1, 10));
  run.flows.back().finish = Duration::max();
  EXPECT_TRUE(std::isnan(value(run, "fct_spread")));
}

TEST(SimulationMetrics, CompletionTimesAreSplitBySize) {
  const RunResult run = known();
  EXPECT_EQ(value(run, "fct_p99_short_us"), 10);
  EXPECT_EQ(value(run, "fct_p50_long_us"), 40);
}

// Two flows to one host, whose link needs 30 us for each; a flow alone takes 35 us.
TEST(SimulationMetrics, FinishRatioComparesWithTheLeastPossibleTime) {
  RunResult run;
  run.jobs = {"all"};
  run.flows = {flow(100'000, 10, 70, 35), flow(100'000, 12, 95, 35)};
  run.flows[1].source = 2;
  for (FlowResult& each : run.flows) {
    each.at_source = Duration::from_us(15);
    each.at_destination = Duration::from_us(30);
  }
  // 10 + 2 x 30 + 5 us.
  EXPECT_DOUBLE_EQ(value(run, "finish_ratio"), 95.0 / 75);
}

TEST(SimulationMetrics, FabricMetricsAreThoseOfItsCounters) {
  const RunResult run = known();
  EXPECT_EQ(value(run, "queue_max_bytes"), 1234);
  EXPECT_EQ(value(run, "trims"), 7);
  EXPECT_EQ(value(run, "drops"), 3);
  EXPECT_EQ(value(run, "drops_all"), 7);
}

TEST(SimulationMetrics, MetricsOfAJobCountOnlyItsFlows) {
  const RunResult run = known();
  EXPECT_EQ(value(run, "fct_p50_us@b"), 30);
  EXPECT_EQ(value(run, "flows_done@a"), 2);
  EXPECT_THAT(metric_value(run, "fct_p50_us@c").error().message, HasSubstr("a, b"));
  EXPECT_THAT(find_metric("queue_max_bytes@a").error().message, HasSubstr("leave out '@a'"));
}

TEST(SimulationMetrics, MetricsWithoutFlowsAreUndefined) {
  const RunResult none;
  EXPECT_TRUE(std::isnan(value(none, "fct_p99_us")));
  EXPECT_TRUE(std::isnan(value(none, "jain")));
  EXPECT_TRUE(std::isnan(value(none, "goodput_gbps")));
}

TEST(SimulationMetrics, RunWithAnUndoneFlowHasNoFinish) {
  RunResult run = known();
  run.flows[3].finish = run.flows[3].received = Duration::max();
  EXPECT_TRUE(std::isnan(value(run, "finish_us")));
  EXPECT_EQ(value(run, "fct_max_us"), 30);
  EXPECT_EQ(value(run, "flows_done"), 3);
  EXPECT_THAT(warnings({}, run),
              ElementsAre(AllOf(HasSubstr("1 of 4 flows"), HasSubstr("2000000 (host 0 to host 1)"),
                                HasSubstr("raise run.time_limit"))));
  RunSpec slow;
  slow.transport.reordering = Duration::max();
  slow.transport.timeout = Duration::from_ms(5);
  EXPECT_THAT(undone_flows(slow, run), AllOf(HasSubstr("only the timeout, 5000 us"),
                                             HasSubstr("give a shorter transport.timeout")));
  slow.endless = true;
  EXPECT_EQ(undone_flows(slow, run), "");
  EXPECT_THAT(warnings({}, known()), IsEmpty());
}

TEST(SimulationMetrics, DropsInSpiteOfPfcAreSaid) {
  RunSpec spec;
  spec.fabric.switches.pfc.enabled = true;
  EXPECT_THAT(warnings(spec, known()),
              ElementsAre(AllOf(HasSubstr("3 packets"), HasSubstr("make the buffer larger"))));
  EXPECT_THAT(warnings(spec), IsEmpty());
}

TEST(SimulationMetrics, DropsOfAnAlgorithmForLosslessFabricsAreSaid) {
  RunSpec spec;
  spec.transport.congestion_control = "dcqcn";
  EXPECT_THAT(warnings(spec, known()),
              ElementsAre(AllOf(HasSubstr("dcqcn is made for lossless"), HasSubstr("3 packets"))));
  EXPECT_THAT(warnings(spec), IsEmpty());
  spec.transport.congestion_control = "swift";
  EXPECT_THAT(warnings(spec, known()), IsEmpty());
}

// 100 Gb/s for twice 1 us are 25,000 bytes.
TEST(SimulationMetrics, HeadroomForLessThanIsInFlightIsSaid) {
  RunSpec spec;
  spec.topology.cables = {
      {.a = 0, .b = 1, .rate = Rate::from_gbps(100), .delay = Duration::from_us(1)}};
  spec.fabric.switches.pfc = {.enabled = true, .headroom = 25'000};
  const Bytes packet = 4096 + packet_sizes(spec, spec.fabric.hosts.overhead_bytes).overhead;
  const std::string wanted = "set headroom = " + std::to_string(25'000 + 4 * packet);
  EXPECT_THAT(warnings(spec), ElementsAre(AllOf(HasSubstr("25000 bytes"), HasSubstr(wanted))));
  EXPECT_THAT(warnings(spec, known()),
              ElementsAre(AllOf(HasSubstr("3 packets"), HasSubstr(wanted))));
  spec.fabric.switches.pfc.headroom += 2 * packet;
  EXPECT_THAT(warnings(spec), IsEmpty());
}

TEST(SimulationMetrics, MarksOfEveryPacketAreSaid) {
  RunSpec spec;
  spec.fabric.switches.ecn = {.kind = EcnConfig::Kind::kRed, .low = 400, .high = 1625};
  EXPECT_THAT(warnings(spec, known()),
              ElementsAre(AllOf(HasSubstr("every full packet"), HasSubstr("raise high"))));
  spec.fabric.switches.ecn.high = 5000;
  EXPECT_THAT(warnings(spec, known()), IsEmpty());
}

TEST(SimulationMetrics, UnknownNameSuggestsTheNearest) {
  EXPECT_THAT(find_metric("fct_p9_us").error().message, HasSubstr("did you mean 'fct_p99_us'?"));
}

TEST(SimulationMetrics, PercentilesAndJainIndexMatchTheirDefinitions) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile(values, 50), 50);
  EXPECT_EQ(percentile(values, 99), 99);
  EXPECT_EQ(percentile(values, 99.1), 100);
  EXPECT_EQ(percentile(values, 100), 100);
  EXPECT_EQ(jain_index({1, 1, 1, 1}), 1);
  EXPECT_EQ(jain_index({1, 0, 0, 0}), 0.25);
}

TEST(SimulationMetrics, JsonHoldsFlowsJobsAndMetrics) {
  RunResult run = known();
  run.flows[0].finish = Duration::max();
  const nlohmann::json json = to_json(run);
  EXPECT_EQ(json["schema_version"], kRunSchemaVersion);
  EXPECT_EQ(json["flows"].size(), 4U);
  EXPECT_EQ(json["flows"][1]["finish_ns"], 20'000);
  EXPECT_TRUE(json["flows"][0]["finish_ns"].is_null());
  EXPECT_TRUE(json["metrics"]["finish_us"].is_null());
  EXPECT_EQ(json["metrics"]["trims"], 7);
  EXPECT_EQ(json["jobs"][1]["metrics"]["fct_p50_us"], 30);
  EXPECT_EQ(json["fabric"]["dropped"]["loss"], 4);
}

TEST(SimulationMetrics, SummaryShowsTheMainMetrics) {
  const std::string text = summary(known());
  for (const char* part : {"4 of 4 done", "50.000 us", "Jain", "1.234 KB", "0 / 7 / 7"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

}  // namespace
}  // namespace pacecar::metrics_test
