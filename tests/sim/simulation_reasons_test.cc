// The reasons that limit the rates of flows: over time in results, as events in traces.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/sim/result_json.h"
#include "bench/sim/run.h"
#include "bench/sim/spec_file.h"
#include "cc/registry.h"
#include "tests/support/scratch_directory.h"

namespace pacecar::simulation_reasons_test {
namespace {

using Json = nlohmann::json;

const std::string kIncast =
    "[topology]\nkind = \"star\"\nhosts = 3\nrate = \"100G\"\n"
    "[workload]\nkind = \"incast\"\nsenders = 2\nbytes = \"1MB\"\n";
const std::set<std::string> kReasons = {"line",   "grant", "network",    "window",
                                        "budget", "host",  "application"};

RunSpec incast(const std::string& control) {
  const auto file = parse_spec(kIncast + "[transport]\ncc = \"" + control + "\"", "test.toml");
  EXPECT_TRUE(file.has_value()) << file.error().message;
  auto spec = make_run_spec(*file->table(), "", 1);
  EXPECT_TRUE(spec.has_value()) << spec.error().message;
  return *spec;
}

RunResult run_of(const RunSpec& spec) {
  auto result = run_experiment(spec);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result.value_or(RunResult{});
}

std::vector<Json> traced(const std::string& control) {
  RunSpec spec = incast(control);
  const test::ScratchDirectory folder;
  spec.trace = folder.path() / "trace";
  run_of(spec);
  std::ifstream lines(spec.trace);
  std::vector<Json> events;
  for (std::string line; std::getline(lines, line);) events.push_back(Json::parse(line));
  return events;
}

class SimulationReasons : public testing::TestWithParam<std::string> {};

TEST_P(SimulationReasons, ReasonsAndRatesArePlausible) {
  const RunResult run = run_of(incast(GetParam()));
  ASSERT_TRUE(run.complete);
  ASSERT_EQ(run.limits.size(), 2U);
  const double line_rate = 100e9;
  for (size_t flow = 0; flow < 2; ++flow) {
    const LimitSeries& limits = run.limits[flow];
    EXPECT_EQ(limits.name, run.rates[flow].name);
    EXPECT_EQ(limits.interval, run.rates[flow].interval);
    ASSERT_EQ(limits.limited_by.size(), run.rates[flow].values.size());
    ASSERT_EQ(limits.allowed.size(), limits.limited_by.size());
    EXPECT_GT(*std::ranges::max_element(limits.allowed), 10e9);
    EXPECT_LE(*std::ranges::max_element(limits.allowed), line_rate * 1.001);
    // In the middle of the run both flows have data to send.
    EXPECT_NE(limits.limited_by[limits.limited_by.size() / 2], LimitedBy::kApplication);
  }
}

TEST_P(SimulationReasons, SamplingDoesNotChangeTheRun) {
  RunSpec unseen = incast(GetParam());
  unseen.sampling.interval = Duration();
  RunSpec seen = unseen;
  seen.sampling.interval = Duration::from_ns(100);
  const test::ScratchDirectory folder;
  seen.trace = folder.path() / "trace";
  EXPECT_EQ(run_of(seen).trace_hash, run_of(unseen).trace_hash);
}

TEST_P(SimulationReasons, ChangesOfReasonAreTraced) {
  std::map<uint64_t, int64_t> last;      // time of a flow's newest rate event
  std::map<uint64_t, Json> newest;       // that event
  std::map<uint64_t, int64_t> finished;  // time
  for (const Json& event : traced(GetParam())) {
    const uint64_t flow = event["flow"];
    const int64_t time = event["time_ns"];
    if (event["event"] == "finish") finished[flow] = time;
    if (event["event"] != "rate") continue;
    EXPECT_TRUE(kReasons.contains(event["limited_by"])) << event;
    for (const char* figure : {"rate_bps", "grant_bps", "grant_age_ns", "epoch", "phase_ns",
                               "share_bps", "core_bps", "budget_bps"}) {
      EXPECT_TRUE(event[figure].is_number_unsigned()) << figure;
    }
    if (last.contains(flow) && !finished.contains(flow)) {
      EXPECT_GE(time - last[flow], 1000) << "at most one in a microsecond";
      EXPECT_TRUE(event["limited_by"] != newest[flow]["limited_by"] ||
                  event["rate_bps"] != newest[flow]["rate_bps"]);
    }
    last[flow] = time;
    newest[flow] = event;
  }
  ASSERT_EQ(newest.size(), 2U);
  for (const auto& [flow, event] : newest) {
    EXPECT_EQ(event["time_ns"], finished[flow]);
    EXPECT_EQ(event["limited_by"], "application");
  }
}

std::vector<std::string> controls_of_any_fabric() {
  std::vector<std::string> names;
  for (const ControllerInfo& control : controllers()) {
    if (!control.needs_telemetry) names.emplace_back(control.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, SimulationReasons, testing::ValuesIn(controls_of_any_fabric()),
                         [](const auto& each) { return each.param; });

TEST(SimulationReasonsOfAnIncast, IncastIsLimitedByGrants) {
  const RunResult run = run_of(incast("pace"));
  for (const LimitSeries& limits : run.limits) {
    const size_t middle = limits.limited_by.size() / 2;
    EXPECT_EQ(limits.limited_by[middle], LimitedBy::kGrant);
    ASSERT_FALSE(limits.grant.empty());
    EXPECT_NEAR(limits.grant[middle], 50e9, 5e9);
    EXPECT_LE(limits.allowed[middle], limits.grant[middle]);
  }
  std::map<std::string, size_t> reasons;
  for (const Json& event : traced("pace")) {
    if (event["event"] != "rate") continue;
    ++reasons[event["limited_by"]];
    if (event["limited_by"] == "grant") {
      EXPECT_GT(event["grant_bps"], 0U);
      EXPECT_LT(event["grant_age_ns"], 1'000'000U);
    }
  }
  EXPECT_GE(reasons["grant"], 2U);
}

TEST(SimulationReasonsJson, JsonHasTheChangesOfReason) {
  RunResult run;
  run.limits.push_back({.name = "7: 1 > 0",
                        .interval = Duration::from_us(2),
                        .allowed = {5, 6, 7},
                        .limited_by = {LimitedBy::kGrant, LimitedBy::kGrant, LimitedBy::kBudget}});
  const Json limits = to_json(run)["limits"][0];
  EXPECT_EQ(limits["interval_ns"], 2000);
  EXPECT_EQ(limits["rate_bps"], Json({5, 6, 7}));
  EXPECT_TRUE(limits["grant_bps"].empty());
  EXPECT_EQ(limits["limited_by"], Json::parse(R"([{"sample": 0, "reason": "grant"},
                                                  {"sample": 2, "reason": "budget"}])"));
}

}  // namespace
}  // namespace pacecar::simulation_reasons_test
