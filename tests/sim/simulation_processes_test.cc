// Whole runs with several processes per host, and with hosts that are configured with other line
// rates than their cables have.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "bench/sim/metrics.h"
#include "bench/sim/result_json.h"
#include "bench/sim/run.h"
#include "bench/sim/spec_file.h"

namespace pacecar::simulation_processes_test {
namespace {

using testing::HasSubstr;

RunSpec spec_of(const std::string& text, uint64_t seed = 1) {
  const auto file = parse_spec(text, "test.toml");
  EXPECT_TRUE(file.has_value()) << file.error().message;
  auto spec = make_run_spec(*file->table(), "", seed);
  EXPECT_TRUE(spec.has_value()) << spec.error().message;
  return *spec;
}

RunResult run_of(const std::string& text, uint64_t seed = 1) {
  auto result = run_experiment(spec_of(text, seed));
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result.value_or(RunResult{});
}

double figure(const RunResult& run, std::string_view name) {
  return metric_value(run, name).value();
}

std::string hosts(uint32_t number, uint32_t processes) {
  return "[topology]\nhosts = " + std::to_string(number) +
         "\nrate = \"100G\"\nprocesses = " + std::to_string(processes) + "\n";
}

// Four processes of a host share its link: the least time is that of one process with
// their total bytes.
TEST(SimulationProcesses, LeastTimeIsThatOfTheSharedLink) {
  const std::string pairs = "[workload]\nkind = \"pairs\"\nhosts = [0, 15]\n";
  const std::string swift = "[transport]\ncc = \"swift\"\n";
  const RunResult one = run_of(hosts(16, 1) + swift + pairs + "bytes = 4000000");
  const RunResult four = run_of(hosts(16, 4) + swift + pairs + "bytes = 1000000");
  ASSERT_EQ(four.flows.size(), 4U);
  EXPECT_TRUE(four.complete);
  EXPECT_NEAR(figure(four, "finish_us"), figure(one, "finish_us"), 0.1 * figure(one, "finish_us"));
  EXPECT_GE(figure(four, "finish_ratio"), 1.0);
  EXPECT_LE(figure(four, "finish_ratio"), 1.15);
  EXPECT_NEAR(figure(four, "finish_us") / figure(four, "finish_ratio"),
              figure(one, "finish_us") / figure(one, "finish_ratio"), 5);
}

// Each process sends to the process with its number on the receiving host, whose link they share.
TEST(SimulationProcesses, FairSharesDivideTheSharedLink) {
  const RunResult run = run_of(hosts(16, 2) +
                               "[transport]\ncc = \"swift\"\n"
                               "[workload]\nkind = \"incast\"\nsenders = 3\nbytes = \"2MB\"\n");
  ASSERT_EQ(run.flows.size(), 6U);
  for (const FlowResult& flow : run.flows) {
    EXPECT_EQ(flow.source % 2, flow.destination % 2);
    EXPECT_LT(flow.destination, 2U);
    // A sixth of the payload rate of 100 Gb/s.
    EXPECT_NEAR(flow.share.fair_rate, 1e11 / 6 * 4096 / (4096 + 120), 1e11 / 6 * 0.03);
  }
  EXPECT_NEAR(figure(run, "share"), 1.0, 0.1);
}

TEST(SimulationProcesses, SameSpecGivesTheSameRun) {
  const std::string text = hosts(16, 4) +
                           "[workload]\nkind = \"all_to_all\"\nparallel = 2\nbytes = \"20KB\"\n"
                           "shuffle = true\n";
  EXPECT_EQ(run_of(text, 5).trace_hash, run_of(text, 5).trace_hash);
  EXPECT_NE(run_of(text, 5).trace_hash, run_of(text, 6).trace_hash);
}

TEST(SimulationProcesses, EveryPacketIsAccountedFor) {
  const RunResult run = run_of(hosts(16, 4) +
                               "[transport]\ncc = \"swift\"\n[fabric]\nqueue = \"20KB\"\n"
                               "[workload]\nkind = \"incast\"\nsenders = 12\nbytes = \"50KB\"");
  EXPECT_TRUE(run.complete);
  EXPECT_EQ(run.flows.size(), 48U);
  EXPECT_TRUE(run.fabric.conserved());
  EXPECT_GT(run.fabric.dropped_for(FabricDrop::kQueueFull), 0U);
  EXPECT_EQ(run.nics.wrong_source, 0U);
  EXPECT_EQ(run.nics.unknown_queue_pair, 0U);
  EXPECT_EQ(to_json(run)["processes"], 4);
}

// Jobs in different processes may use different algorithms on the same hosts.
TEST(SimulationProcesses, JobsMayTakeDifferentProcessesOfTheSameHosts) {
  const std::string text = hosts(16, 2) + R"(
[[workload.job]]
name = "a"
kind = "incast"
cc = "swift"
senders = 3
bytes = "100KB"
processes = [0]
[[workload.job]]
name = "b"
kind = "incast"
cc = "nscc"
senders = 3
bytes = "100KB"
processes = [1]
)";
  const RunSpec spec = spec_of(text);
  ASSERT_EQ(spec.workload.flows.size(), 6U);
  const auto algorithms = algorithms_of(spec);
  ASSERT_TRUE(algorithms.has_value()) << algorithms.error().message;
  EXPECT_EQ(algorithms->controls[2], "swift");  // process 0 of host 1
  EXPECT_EQ(algorithms->controls[3], "nscc");
  EXPECT_TRUE(run_of(text).complete);
}

TEST(SimulationProcesses, WrongProcessesAndLineRatesAreRefused) {
  const auto complaint = [](const std::string& text) {
    const auto spec = make_run_spec(*parse_spec(text, "x.toml")->table(), "");
    return spec ? std::string() : spec.error().message;
  };
  EXPECT_THAT(complaint("[topology]\nprocesses = 2\n[workload]\nprocesses = [2]"),
              HasSubstr("x.toml, line 4: [workload] processes is [2]"));
  EXPECT_THAT(complaint("[topology]\nprocesses = 2\n[workload]\nprocesses = [1, 1]"),
              HasSubstr("names process 1 twice"));
  EXPECT_THAT(complaint("[topology]\nprocesses = 0"), HasSubstr("processes is 0"));
  EXPECT_THAT(complaint("[transport]\nline_rate = \"0x\""), HasSubstr("a factor is 0.001x"));
  EXPECT_THAT(complaint("[transport]\nline_rate = \"fastx\""), HasSubstr("a factor is 0.001x"));
}

TEST(SimulationProcesses, HostFaultAppliesToItsProcesses) {
  const RunSpec all = spec_of(hosts(16, 4) + "[[fault]]\nkind = \"host-frozen\"\nhost = 2\n");
  ASSERT_EQ(all.faults.size(), 4U);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(all.faults[i].target, 8 + i);
  const RunSpec one =
      spec_of(hosts(16, 4) + "[[fault]]\nkind = \"word-loss\"\nhost = 2\nprocess = 3\n");
  ASSERT_EQ(one.faults.size(), 1U);
  EXPECT_EQ(one.faults[0].target, 11U);
  EXPECT_FALSE(one.faults[0].everywhere);
}

// The line rate that a host is configured with, and the first rate of its flows.
TEST(SimulationRates, LineRateAndFirstRateAreRead) {
  const Rate cable = Rate::from_gbps(400);
  const auto of = [](const std::string& keys) { return spec_of("[transport]\n" + keys).transport; };
  EXPECT_EQ(of("").nominal_rate(cable), cable);
  EXPECT_EQ(of("").first_rate_of(cable), Rate());
  EXPECT_EQ(of("line_rate = \"0.5x\"").nominal_rate(cable), Rate::from_gbps(200));
  EXPECT_EQ(of("line_rate = \"100G\"").nominal_rate(cable), Rate::from_gbps(100));
  EXPECT_EQ(of("share = \"off\"").first_rate_of(cable), Rate::from_gbps(50));
  EXPECT_EQ(of("share = \"off\"\nfirst_rate = \"1G\"").first_rate_of(cable), Rate::from_gbps(1));
  EXPECT_EQ(of("first_rate = \"1G\"").first_rate_of(cable), Rate::from_gbps(1));
}

// With a fixed rate, a host sends at the line rate that it is configured with.
TEST(SimulationRates, ConfiguredLineRateIsUsed) {
  const std::string text = hosts(16, 1) +
                           "[workload]\nkind = \"pairs\"\nhosts = [0, 15]\nbytes = \"20MB\"\n"
                           "[transport]\ncc = \"fixed\"\n";
  const double whole = figure(run_of(text), "finish_us");
  EXPECT_NEAR(figure(run_of(text + "line_rate = \"0.5x\"\n"), "finish_us"), 2 * whole,
              0.05 * whole);
  EXPECT_NEAR(figure(run_of(text + "line_rate = \"25G\"\n"), "finish_us"), 4 * whole, 0.1 * whole);
  // A higher line rate does not exceed the cable, and metrics use the cable's rate.
  EXPECT_NEAR(figure(run_of(text + "line_rate = \"2x\"\n"), "finish_us"), whole, 0.05 * whole);
  EXPECT_NEAR(figure(run_of(text + "line_rate = \"0.5x\"\n"), "finish_ratio"), 2, 0.1);
}

}  // namespace
}  // namespace pacecar::simulation_processes_test
