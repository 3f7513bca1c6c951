#include "bench/ab/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bench/ab/experiment.h"

namespace pacecar::ab::plan_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kHead = R"(
name = "two queues"
seeds = 3
metrics = ["finish_us"]

[transport]
cc = "swift"
mtu = 4096

[[arm]]
name = "swift"

[[arm]]
name = "fixed"
transport.cc = "fixed"

[[factor]]
name = "queue"
[[factor.value]]
name = "small"
fabric.queue = "40KB"
[[factor.value]]
name = "large"
fabric.queue = "400KB"

[[factor]]
name = "paths"
key = "transport.paths"
values = [1, 64]
)";

Plan plan_of(const std::string& more) {
  auto plan = parse_plan(std::string(kHead) + more, "plan.toml");
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : Plan();
}

std::string error_of(const std::string& text) {
  const auto plan = parse_plan(text, "plan.toml");
  return plan ? "no error" : plan.error().message;
}

TEST(Plan, ArmsAndFactorsAreCombined) {
  const Plan plan = plan_of("");
  const Experiment& experiment = plan.experiment;
  EXPECT_EQ(experiment.name, "two queues");
  EXPECT_THAT(experiment.seeds, ElementsAre(1, 2, 3));
  EXPECT_EQ(experiment.runs(), 24u);
  EXPECT_EQ(cell_text(experiment, experiment.cells[0]), "swift, queue = small, paths = 1");
  EXPECT_EQ(cell_text(experiment, experiment.cells[7]), "fixed, queue = large, paths = 64");
  EXPECT_EQ(experiment.arms[1].settings, "transport.cc = \"fixed\"");
  EXPECT_EQ(experiment.seed_of(5), 3u);
}

TEST(Plan, ArmsAndValuesOverrideTheKeysOfThePlan) {
  const Plan plan = plan_of("");
  const SpecTable& transport = *plan.specs[7].find("transport")->table();
  EXPECT_EQ(*transport.find("cc")->string(), "fixed");
  EXPECT_EQ(to_text(*transport.find("paths")), "64");
  EXPECT_EQ(to_text(*transport.find("mtu")), "4096");
  EXPECT_EQ(*plan.specs[7].find("fabric")->table()->find("queue")->string(), "400KB");
  EXPECT_EQ(*plan.specs[0].find("transport")->table()->find("cc")->string(), "swift");
}

TEST(Plan, SkipAndOnlyChooseCells) {
  EXPECT_EQ(plan_of("[[skip]]\narm = 'fixed'\nqueue = 'small'\n").experiment.cells.size(), 6u);
  EXPECT_EQ(plan_of("[[only]]\npaths = 64\n").experiment.cells.size(), 4u);
  EXPECT_EQ(plan_of("[[only]]\npaths = [1, 64]\nqueue = 'small'\n[[skip]]\npaths = 64\n")
                .experiment.cells.size(),
            2u);
}

TEST(Plan, ThresholdsApplyToTheirCells) {
  const Plan plan = plan_of(R"(
[[threshold]]
metric = "finish_us"
arm = "swift"
where = {queue = "small"}
expect = 200
within = "5%"
[[threshold]]
metric = "finish_us"
where = {paths = 64, queue = "large"}
versus = "swift"
max_ratio = 0.5
[[threshold]]
metric = "jain"
where = {paths = 1, queue = "large"}
arm = "fixed"
min = 0.9
[[threshold]]
metric = "finish_us"
where = {paths = 1, queue = "large"}
arm = "fixed"
expect = [100, 120]
within = 10
)");
  const auto& thresholds = plan.experiment.thresholds;
  ASSERT_EQ(thresholds.size(), 5u);
  EXPECT_EQ(thresholds[0].cell, 0u);
  EXPECT_EQ(thresholds[1].cell, 2u);
  EXPECT_DOUBLE_EQ(thresholds[0].low, 190);
  EXPECT_DOUBLE_EQ(thresholds[0].high, 210);
  EXPECT_EQ(thresholds[0].expected, "200 within 5%");
  EXPECT_EQ(thresholds[2].cell, 7u);
  EXPECT_EQ(thresholds[2].versus, 6u);
  EXPECT_EQ(thresholds[2].of, Threshold::Of::kRatio);
  EXPECT_EQ(thresholds[2].expected, "at most 0.5 x swift");
  EXPECT_EQ(thresholds[3].low, 0.9);
  EXPECT_TRUE(std::isinf(thresholds[3].high));
  EXPECT_DOUBLE_EQ(thresholds[4].low, 90);
  EXPECT_DOUBLE_EQ(thresholds[4].high, 130);
}

TEST(Plan, ErrorsNameLineCauseAndRemedy) {
  const std::string head(kHead);
  EXPECT_THAT(error_of("name = 'x'\n"), HasSubstr("no arm: write [[arm]]"));
  EXPECT_THAT(error_of("seed = 3\n" + head), HasSubstr("plan.toml, line 1"));
  EXPECT_THAT(error_of("seed = 3\n" + head), HasSubstr("did you mean 'seeds'?"));
  EXPECT_THAT(error_of(head + "[[arm]]\nname = 'swift'\n"), HasSubstr("two arms named 'swift'"));
  EXPECT_THAT(error_of(head + "[[arm]]\nname = 'x'\ntransprot.cc = 'x'\n"),
              HasSubstr("did you mean 'transport'?"));
  EXPECT_THAT(error_of(head + "[[skip]]\nqueue = 'smal'\n"), HasSubstr("did you mean 'small'?"));
  EXPECT_THAT(error_of(head + "[[only]]\nqeue = 'small'\n"), HasSubstr("did you mean 'queue'?"));
  EXPECT_THAT(error_of(head + "[[skip]]\npaths = [1, 64]\n"), HasSubstr("the plan has 0 runs"));
  EXPECT_THAT(error_of(head + "[[factor]]\nname = 'x'\nkey = 'run.x'\nvalues = []\n"),
              HasSubstr("is empty"));
  EXPECT_THAT(error_of(head + "[[factor]]\nname = 'queue'\nkey = 'run.x'\nvalues = [1]\n"),
              HasSubstr("two factors named 'queue'"));
  EXPECT_THAT(error_of(head + "[[factor]]\nname = 'seed'\nkey = 'run.x'\nvalues = [1]\n"),
              HasSubstr("a name of its own"));
  EXPECT_THAT(error_of("arm = 3\n"), HasSubstr("[[arm]]"));
  EXPECT_THAT(error_of("baseline = 'swfit'\n" + head), HasSubstr("did you mean 'swift'?"));
  EXPECT_THAT(error_of("seeds = 0\n" + head.substr(head.find("metrics"))), HasSubstr("from 1"));
  EXPECT_THAT(error_of("seeds = [1, 1]\n" + head.substr(head.find("metrics"))), HasSubstr("twice"));
}

TEST(Plan, WrongThresholdsAreRefused) {
  const std::string head = std::string(kHead) + "[[threshold]]\nmetric = 'finish_us'\n";
  EXPECT_THAT(error_of(head), HasSubstr("needs one kind of bound"));
  EXPECT_THAT(error_of(head + "min = 1\nmax_ratio = 2\nversus = 'swift'\n"),
              HasSubstr("needs one kind of bound"));
  EXPECT_THAT(error_of(head + "max_ratio = 2\n"), HasSubstr("versus"));
  EXPECT_THAT(error_of(head + "max_ratio = 2\nversus = 'swift2'\n"),
              HasSubstr("did you mean 'swift'?"));
  EXPECT_THAT(error_of(head + "expect = 3\nwithin = '5'\n"), HasSubstr("a share such as \"5%\""));
  EXPECT_THAT(error_of(head + "max = 3\nwithin = '5%'\n"), HasSubstr("goes with expect"));
  EXPECT_THAT(error_of(head + "maximum = 3\n"), HasSubstr("kind of bound"));
  EXPECT_THAT(error_of(std::string(kHead) + "[[threshold]]\nmetric = 'finish_use'\nmax = 1\n"),
              HasSubstr("did you mean 'finish_us'?"));
  EXPECT_THAT(error_of(std::string(kHead) + "[[skip]]\narm = 'fixed'\nqueue = 'small'\n" +
                       "[[threshold]]\nmetric = 'finish_us'\narm = 'fixed'\n" +
                       "where = {queue = 'small'}\nmax = 1\n"),
              HasSubstr("about no cell"));
}

TEST(Plan, PrefixesOfAPlanDoNotCrash) {
  const std::string text = std::string(kHead) + "[[threshold]]\nmetric = 'jain'\nmin = 0.5\n";
  for (size_t i = 0; i < text.size(); ++i) (void)parse_plan(text.substr(0, i), "plan.toml");
}

TEST(Filter, SelectedRunsMeetAllConditions) {
  const Experiment experiment = plan_of("").experiment;
  EXPECT_EQ(filter_runs(experiment, {})->size(), 24u);
  EXPECT_EQ(filter_runs(experiment, {"arm=f*"})->size(), 12u);
  EXPECT_THAT(*filter_runs(experiment, {"arm=swift", "queue=small", "paths=1"}),
              ElementsAre(0, 1, 2));
  EXPECT_THAT(*filter_runs(experiment, {"arm=fixed", "queue=large", "paths=64", "seed=3"}),
              ElementsAre(23));
  EXPECT_THAT(filter_runs(experiment, {"que=small"}).error().message,
              HasSubstr("did you mean 'queue'?"));
  EXPECT_THAT(filter_runs(experiment, {"arm=nobody"}).error().message, HasSubstr("leaves no run"));
}

}  // namespace
}  // namespace pacecar::ab::plan_test
