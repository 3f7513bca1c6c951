#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "bench/ab/runner.h"
#include "bench/cli/command_line.h"
#include "tests/support/scratch_directory.h"

namespace pacecar::ab::programs_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<std::vector<std::string>> environment_of(const std::string& text) {
  Plan plan;
  if (const auto added = add_arm(plan, {"true"}, "arm", text); !added) {
    return tl::unexpected(added.error());
  }
  return plan.commands[0].environment;
}

TEST(ProgramArm, EnvironmentIsSplitAsInAShell) {
  EXPECT_THAT(*environment_of("A=1 B='two words'  C=\"it's\""),
              ElementsAre("A=1", "B=two words", "C=it's"));
  EXPECT_TRUE(environment_of("")->empty());
  EXPECT_THAT(*environment_of("A="), ElementsAre("A="));
  for (const char* broken : {"A", "=1", "A='1", "A=1 dcqcn"}) {
    EXPECT_THAT(environment_of(broken).error().message, HasSubstr("NAME=value")) << broken;
  }
}

TEST(ProgramOrder, EachBlockRunsEachArmOnceInRandomOrder) {
  const std::vector<Cell> cells = {{0, {}}, {1, {}}, {2, {}}};
  const auto steps = program_order(cells, 40, 7);
  ASSERT_EQ(steps.size(), 120u);
  std::set<std::vector<size_t>> orders;
  for (size_t block = 0; block < 40; ++block) {
    std::vector<size_t> order;
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(steps[block * 3 + i].block, block);
      order.push_back(steps[block * 3 + i].cell);
    }
    orders.insert(order);
    EXPECT_THAT(order, testing::UnorderedElementsAre(0, 1, 2));
  }
  EXPECT_EQ(orders.size(), 6u);  // all permutations
  EXPECT_EQ(program_order(cells, 40, 7)[50].cell, steps[50].cell);
}

TEST(ProgramOrder, ArmsWithEqualFactorValuesRunInSequence) {
  const std::vector<Cell> cells = {{0, {0}}, {0, {1}}, {1, {0}}, {1, {1}}};
  const auto steps = program_order(cells, 20, 7);
  ASSERT_EQ(steps.size(), 80u);
  std::set<size_t> first;
  for (size_t i = 0; i < steps.size(); i += 2) {
    EXPECT_EQ(cells[steps[i].cell].values, cells[steps[i + 1].cell].values);
    EXPECT_NE(steps[i].cell, steps[i + 1].cell);
    if (i % 4 == 0) first.insert(steps[i].cell);
  }
  EXPECT_EQ(first.size(), 4u);
}

class ProgramRun : public testing::Test {
 protected:
  ProgramRun() {
    set_command({"sh", "-c",
                 "echo '#bytes #iterations BW average[Gb/sec]'; echo \"2 1 $RATE.$(wc -l < " +
                     log_ + ")\"; echo $RATE >> " + log_},
                4);
    std::fclose(std::fopen(log_.c_str(), "w"));
  }

  void set_command(const std::vector<std::string>& command, size_t rounds) {
    plan_ = program_plan(command, rounds);
    EXPECT_TRUE(add_arm(plan_, command, "slow", "RATE=10"));
    EXPECT_TRUE(add_arm(plan_, command, "fast", "RATE=12"));
  }

  Result<Results> run(const std::vector<std::string>& filters = {}) {
    const auto folder =
        ResultsFolder::open(folder_.path() / "results", ResultsFolder::Existing::kReplace);
    return run_plan(plan_, *filter_runs(plan_.experiment, filters), {}, *folder,
                    [](size_t, size_t) {});
  }

  test::ScratchDirectory folder_;
  std::string log_ = folder_.path() / "log";
  Plan plan_;
};

TEST_F(ProgramRun, EachArmIsMeasuredInEachBlock) {
  plan_.warmups = 1;
  const auto results = run();
  ASSERT_TRUE(results) << results.error().message;
  ASSERT_EQ(results->records.size(), 8u);
  EXPECT_THAT(results->experiment.shown, ElementsAre("bw_gbps"));
  for (const RunRecord& record : results->records) {
    const double rate = record.metrics.at("bw_gbps");
    EXPECT_EQ(static_cast<int>(rate), record.arm == "slow" ? 10 : 12);
    // Two warm-up runs come first.
    EXPECT_GE(rate - static_cast<int>(rate), 0.1);
  }
}

TEST_F(ProgramRun, FailedCommandIsReportedWithItsLastLines) {
  set_command({"sh", "-c", "echo begun; echo 'no such device' >&2; exit 3"}, 4);
  const auto results = run();
  ASSERT_FALSE(results);
  EXPECT_THAT(results.error().message, HasSubstr("ended with exit code 3"));
  EXPECT_THAT(results.error().message, HasSubstr("no such device"));
}

TEST_F(ProgramRun, WallTimeIsShownWhenTheOutputHasNoFigures) {
  set_command({"true"}, 1);
  EXPECT_THAT(run()->experiment.shown, ElementsAre("wall_s"));
  plan_.experiment.shown = {"bw_gbps"};
  EXPECT_THAT(run().error().message, HasSubstr("choose --metric among wall_s"));
}

TEST(ShellQuoted, PlainWordsStayUnquoted) {
  EXPECT_EQ(cli::shell_quoted("--out=a/b-1.2"), "--out=a/b-1.2");
  EXPECT_EQ(cli::shell_quoted("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(cli::shell_quoted(""), "''");
}

constexpr const char* kLive = R"(
description = "two settings"
command = ["sh", "-c", "echo '{\"metrics\": {\"queue_p99_bytes\": '$QUEUE'}}'"]
rounds = 3
baseline = "long"
metrics = ["queue_p99_bytes"]
[[arm]]
name = "short"
environment = {QUEUE = 20}
[[arm]]
name = "long"
environment = {QUEUE = "100"}
[[threshold]]
metric = "queue_p99_bytes"
arm = "short"
versus = "long"
max_ratio = 0.25
)";

TEST(ProgramPlanFile, PlanHasCommandsAndThresholds) {
  const auto plan = parse_plan(kLive, "live");
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(plan->of_programs());
  const Experiment& experiment = plan->experiment;
  EXPECT_EQ(experiment.name, "live");
  EXPECT_EQ(experiment.seeds.size(), 3u);
  EXPECT_EQ(experiment.baseline, 1u);
  EXPECT_EQ(experiment.arms[0].settings, "QUEUE=20");
  EXPECT_THAT(plan->commands[0].environment, ElementsAre("QUEUE=20"));
  ASSERT_EQ(experiment.thresholds.size(), 1u);
  EXPECT_EQ(experiment.thresholds[0].cell, 0u);
  EXPECT_EQ(experiment.thresholds[0].versus, 1u);
  EXPECT_FALSE(parse_plan("[[arm]]\nname = \"pace\"", "a simulation's")->of_programs());
}

TEST(ProgramPlanFile, ErrorsNameTheWrongKey) {
  const std::string arms = "[[arm]]\nname = \"a\"\n[[arm]]\nname = \"b\"\n";
  for (const auto& [text, words] :
       {std::pair<std::string, const char*>{"command = []\n" + arms, "command"},
        {"command = [\"true\"]\n[[arm]]\nname = \"a\"\n", "two arms"},
        {"command = [\"true\"]\n" + arms + "[[arm]]\nname = \"a\"\n", "rename one"},
        {"command = \"true\"\n" + arms, "list"},
        {"command = [\"true\"]\nseeds = 3\n" + arms, "seeds"},
        {"command = [\"true\"]\n" + arms + "[[factor]]\nname = \"f\"\n", "--FLAG"},
        {"command = [\"true\"]\n" + arms + "[[skip]]\narm = [\"a\", \"b\"]\n", "0 runs"},
        {"command = [\"true\"]\nbaseline = \"c\"\n" + arms, "baseline"}}) {
    const auto plan = parse_plan(text, "live");
    ASSERT_FALSE(plan) << text;
    EXPECT_THAT(plan.error().message, HasSubstr(words));
  }
}

TEST_F(ProgramRun, ThresholdsApplyToPrintedMetrics) {
  plan_ = *parse_plan(kLive, "live");
  const auto results = run();
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->records.size(), 6u);
  EXPECT_EQ(results->records[0].metrics.at("queue_p99_bytes"), 20);
  EXPECT_THAT(results->experiment.shown, ElementsAre("queue_p99_bytes"));
  ASSERT_EQ(results->experiment.thresholds.size(), 1u);
  plan_.experiment.thresholds[0].metric = "unknown";
  EXPECT_THAT(run().error().message, HasSubstr("'unknown'"));
}

// The flags are the metric's name, "0" and a number.
constexpr const char* kFactors = R"(
command = ["sh", "-c", "echo '{\"metrics\": {\"'$1'\": '$((QUEUE * $3))'}}'", "sh"]
rounds = 3
[[arm]]
name = "long"
environment = {QUEUE = 10}
[[arm]]
name = "short"
environment = {QUEUE = 2}
[[factor]]
name = "what"
[[factor.value]]
name = "queue"
flags = ["queue_p99_bytes"]
[[factor.value]]
name = "rate"
flags = ["gbps"]
[[factor]]
name = "times"
flag = "0"
values = [1, 5]
[[skip]]
what = "rate"
times = 5
[[threshold]]
metric = "queue_p99_bytes"
where = {what = "queue"}
versus = "long"
statistic = "median"
max_ratio = 0.25
[[threshold]]
metric = "gbps"
arm = "short"
where = {what = "rate"}
min = 3
)";

class ProgramFactors : public ProgramRun {
 protected:
  ProgramFactors() { plan_ = *parse_plan(kFactors, "factors"); }
};

TEST_F(ProgramFactors, EachCellRunsWithItsFlagsAndEnvironment) {
  const auto results = run();
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->records.size(), 6u * 3u);
  for (const RunRecord& record : results->records) {
    const double queue = record.arm == "long" ? 10 : 2;
    const double times = std::stod(record.factors.at("times"));
    const char* metric = record.factors.at("what") == "queue" ? "queue_p99_bytes" : "gbps";
    EXPECT_EQ(record.metrics.at(metric), queue * times);
  }
  const auto& thresholds = results->experiment.thresholds;
  ASSERT_EQ(thresholds.size(), 3u);  // one ratio for each of two cells of queue, one bound for rate
  EXPECT_TRUE(thresholds[0].median);
  EXPECT_EQ(thresholds[0].expected, "median at most 0.25 x long");
}

TEST_F(ProgramFactors, OnlyRequestedRunsAreExecuted) {
  // The second round of the first two cells.
  const auto results = run({"seed=2", "what=queue", "times=1"});
  ASSERT_TRUE(results) << results.error().message;
  ASSERT_EQ(results->records.size(), 2u);
  EXPECT_EQ(results->records[0].arm, "long");
  EXPECT_EQ(results->records[1].arm, "short");
  EXPECT_EQ(results->records[0].factors, results->records[1].factors);
}

TEST_F(ProgramFactors, UnknownMetricIsAnError) {
  plan_.experiment.shown = {"gbps", "queue_p99_bytes"};
  EXPECT_TRUE(run());
  plan_.experiment.shown.push_back("unknown");
  EXPECT_THAT(run().error().message, HasSubstr("'unknown'"));
}

}  // namespace
}  // namespace pacecar::ab::programs_test
