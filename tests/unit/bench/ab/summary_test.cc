#include "bench/ab/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/scratch_directory.h"

namespace pacecar::ab::summary_test {
namespace {

using testing::HasSubstr;

// Two arms under two values of a factor, three seeds.
Experiment experiment() {
  Experiment result;
  result.name = "test";
  result.arms = {{"base", ""}, {"other", "x = 1"}};
  result.factors = {{"size", {"small", "la,rge"}}};
  result.seeds = {1, 2, 3};
  result.shown = {"finish_us"};
  result.cells = {{0, {0}}, {1, {0}}, {0, {1}}, {1, {1}}};
  return result;
}

RunRecord record(const Experiment& of, size_t run, double finish) {
  RunRecord result = record_of(of, run);
  result.ok = true;
  result.metrics = {{"finish_us", finish}, {"events", 7}};
  return result;
}

std::vector<RunRecord> records(const Experiment& of) {
  std::vector<RunRecord> all;
  for (size_t run = 0; run < of.runs(); ++run) {
    const double arm = of.cell_of(run).arm == 1 ? 10 : 20;
    all.push_back(record(of, run, arm + 0.5 * static_cast<double>(run * run % 5)));
  }
  return all;
}

Threshold threshold(size_t cell, double low, double high) {
  Threshold result;
  result.metric = "finish_us";
  result.cell = cell;
  result.low = low;
  result.high = high;
  result.reference = high;
  return result;
}

TEST(Summary, CellsOfEqualFactorsAreCompared) {
  const Experiment of = experiment();
  const Summary summary = summarise(of, records(of));
  ASSERT_EQ(summary.cells.size(), 4u);
  ASSERT_EQ(summary.comparisons.size(), 2u);
  EXPECT_EQ(summary.comparisons[1].cell, 3u);
  EXPECT_EQ(summary.comparisons[1].baseline_cell, 2u);
  EXPECT_EQ(summary.comparisons[0].result.n, 3u);
  EXPECT_LT(summary.comparisons[0].result.difference, 0);
  EXPECT_LT(*summary.comparisons[0].ratio, 0.6);
  EXPECT_TRUE(summary.passed());
}

// A seed counts only if both cells have a result for it.
TEST(Summary, FailedRunExcludesItsPair) {
  const Experiment of = experiment();
  std::vector<RunRecord> all = records(of);
  all[1].ok = false;
  all[1].error = "crashed";
  all[1].metrics.clear();
  const Summary summary = summarise(of, all);
  EXPECT_EQ(summary.comparisons[0].result.n, 2u);
  EXPECT_EQ(summary.cells[0].failed, 1u);
  EXPECT_EQ(summary.failed(), 1u);
  EXPECT_THAT(summary_text(of, summary, false),
              HasSubstr("1 (base, size = small, seed 2): crashed"));
}

TEST(Summary, ThresholdsCheckValuesRatiosAndDifferences) {
  Experiment of = experiment();
  of.thresholds = {threshold(0, 0, 100), threshold(1, 0, 5), threshold(1, 0, 0.6),
                   threshold(1, -5, 0)};
  of.thresholds[2].of = Threshold::Of::kRatio;
  of.thresholds[3].of = Threshold::Of::kDifference;
  const Summary summary = summarise(of, records(of));
  ASSERT_EQ(summary.thresholds.size(), 4u);
  EXPECT_TRUE(summary.thresholds[0].passed);
  EXPECT_FALSE(summary.thresholds[1].passed);
  EXPECT_NEAR(*summary.thresholds[1].deviation, (*summary.thresholds[1].measured - 5) / 5, 1e-12);
  EXPECT_TRUE(summary.thresholds[2].passed);
  EXPECT_NEAR(*summary.thresholds[2].measured, *summary.comparisons[0].ratio, 1e-12);
  EXPECT_FALSE(summary.thresholds[3].passed);
  EXPECT_FALSE(summary.passed());
  EXPECT_THAT(summary_text(of, summary, false), HasSubstr("MISS"));
}

TEST(Summary, UnmeasuredThresholdFails) {
  Experiment of = experiment();
  of.thresholds = {threshold(0, 0, 100), threshold(2, 0, 100)};
  of.thresholds[0].metric = "jain";
  std::vector<RunRecord> all = records(of);
  all.resize(6);  // runs of size la,rge are filtered out: their threshold is skipped
  const Summary summary = summarise(of, all);
  ASSERT_EQ(summary.thresholds.size(), 1u);
  EXPECT_FALSE(summary.thresholds[0].measured);
  EXPECT_FALSE(summary.passed());
  EXPECT_THAT(summary_text(of, summary, false), HasSubstr("not measured"));
}

// One run of cell 1 is not done: its figures are of a part only.
TEST(Summary, RunsThatAreNotDoneComeFirstAndMeetNoThreshold) {
  Experiment of = experiment();
  of.thresholds = {threshold(0, 0, 100), threshold(1, 0, 100), threshold(0, 0, 100)};
  of.thresholds[2].of = Threshold::Of::kRatio;
  of.thresholds[2].versus = 1;
  std::vector<RunRecord> all = records(of);
  EXPECT_TRUE(summarise(of, all).passed());
  all[4].error = "3 of 4 flows were not done";
  const Summary summary = summarise(of, all);
  EXPECT_EQ(summary.failed(), 0u);
  EXPECT_TRUE(summary.thresholds[0].passed);
  EXPECT_FALSE(summary.thresholds[1].passed);
  EXPECT_FALSE(summary.thresholds[2].passed);
  EXPECT_FALSE(summary.passed());
  EXPECT_FALSE(summary.comparisons[0].better);
  EXPECT_TRUE(summary.comparisons[1].better);
  const std::string text = summary_text(of, summary, false);
  EXPECT_THAT(text, testing::StartsWith("0 of 12 runs failed, 1 did not finish"));
  EXPECT_THAT(text, HasSubstr("4 (other, size = small, seed 2): 3 of 4 flows were not done"));
  EXPECT_THAT(text, HasSubstr("NOT DONE"));
}

TEST(Summary, ArmsWithEqualResultsAreIdentical) {
  Experiment of = experiment();
  of.arms.push_back({"third", ""});
  of.cells.push_back({2, {0}});
  of.cells.push_back({2, {1}});
  std::vector<RunRecord> all;
  for (size_t run = 0; run < of.runs(); ++run) {
    all.push_back(record(of, run, of.cell_of(run).arm == 0 ? 20 : 10));
    all.back().metrics["wall_s"] = static_cast<double>(run);
  }
  using testing::ElementsAre;
  EXPECT_THAT(summarise(of, all).equals, ElementsAre(ElementsAre(1, 2)));
  EXPECT_THAT(equals_text(of, {1, 2}), HasSubstr("'other' and 'third' are identical in all runs"));
  all.back().metrics["events"] = 8;
  EXPECT_THAT(summarise(of, all).equals, testing::IsEmpty());
  for (RunRecord& one : all) one.metrics = {{"wall_s", 1}};
  EXPECT_THAT(summarise(of, all).equals, testing::IsEmpty());  // time alone says nothing
}

TEST(Summary, MedianIgnoresAnOutlier) {
  Experiment of = experiment();
  std::vector<RunRecord> all;
  for (size_t run = 0; run < of.runs(); ++run) {
    const double arm = of.cell_of(run).arm == 1 ? 10 : 20;
    all.push_back(record(of, run, of.seed_of(run) == 2 && arm == 10 ? 1000 : arm));
  }
  Threshold value = threshold(1, 0, 10);
  Threshold ratio = threshold(1, 0, 0.5);
  ratio.of = Threshold::Of::kRatio;
  of.thresholds = {value, ratio};
  EXPECT_FALSE(summarise(of, all).thresholds[0].passed);
  EXPECT_FALSE(summarise(of, all).thresholds[1].passed);
  for (Threshold& each : of.thresholds) each.median = true;
  EXPECT_EQ(summarise(of, all).thresholds[0].measured, 10);
  EXPECT_EQ(summarise(of, all).thresholds[1].measured, 0.5);
  EXPECT_TRUE(summarise(of, all).passed());
}

TEST(Summary, ZeroBaselineHasNoRatio) {
  Experiment of = experiment();
  of.seeds = {1};
  std::vector<RunRecord> all;
  for (size_t run = 0; run < 4; ++run) all.push_back(record(of, run, run % 2 == 0 ? 0 : 3));
  const Summary summary = summarise(of, all);
  EXPECT_FALSE(summary.comparisons[0].ratio);
  EXPECT_EQ(summary.comparisons[0].result.verdict, Verdict::kOnePair);
  EXPECT_FALSE(summary.comparisons[0].better);
}

TEST(Summary, JsonHasCellsComparisonsAndVerdict) {
  const Experiment of = experiment();
  const auto json = nlohmann::json::parse(summary_json(of, summarise(of, records(of))));
  EXPECT_EQ(json["cells"].size(), 4u);
  EXPECT_EQ(json["cells"][3]["factors"]["size"], "la,rge");
  EXPECT_EQ(json["comparisons"][0]["interval"], "student");
  EXPECT_EQ(json["passed"], true);
}

TEST(NumberText, NumbersAreShort) {
  EXPECT_EQ(number_text(668.2134), "668.21");
  EXPECT_EQ(number_text(419000), "419000");
  EXPECT_EQ(number_text(0.98765432), "0.98765");
  EXPECT_EQ(number_text(0), "0");
}

TEST(Record, RecordIsReadBackFromALine) {
  const Experiment of = experiment();
  RunRecord one = record(of, 4, 1.25);
  one.error = "two\nlines, and \xff";
  const std::string line = to_line(one);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto back = record_from_line(line);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->metrics, one.metrics);
  EXPECT_EQ(back->factors, one.factors);
  EXPECT_EQ(back->seed, 2u);
  EXPECT_FALSE(record_from_line("{}"));
  EXPECT_FALSE(record_from_line("nonsense"));
}

TEST(Record, UnfinishedLastLineIsIgnored) {
  const Experiment of = experiment();
  const test::ScratchDirectory scratch;
  const ResultsFolder folder(scratch.path());
  EXPECT_TRUE(folder.read_records()->empty());
  ASSERT_TRUE(folder.append(record(of, 2, 5)));
  ASSERT_TRUE(folder.append(record(of, 1, 6)));
  ASSERT_TRUE(folder.append(record(of, 2, 7)));
  std::ofstream(folder.file("runs.jsonl"), std::ios::app) << "{\"plan\": \"cut";
  const auto read = folder.read_records();
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].index, 1u);
  EXPECT_EQ((*read)[1].metrics.at("finish_us"), 7);
  std::ofstream(folder.file("runs.jsonl"), std::ios::app) << "\n";
  EXPECT_THAT(folder.read_records().error().message, HasSubstr("line 4"));
}

}  // namespace
}  // namespace pacecar::ab::summary_test
