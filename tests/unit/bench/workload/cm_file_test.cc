// Connection matrices: the workloads that they give, and the errors of invalid files.
#include "bench/workload/cm_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace pacecar::cm_file_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kMatrix = R"(# three flows
Nodes 10
Connections 3
Triggers 2
3->7 id 1 start 2.5 size 1000000 send_done_trigger 8
7->9 id 5 trigger 8 size 2000 recv_done_trigger 4  # the second
9->3 id 3 trigger 4 start 10 size 3000
trigger id 4 barrier count 1
trigger id 8 oneshot
)";

std::string why_not(std::string_view text) {
  const auto workload = parse_cm(text, "m.cm");
  return workload ? "it was read" : workload.error().message;
}

// The error of the matrix with `line` in place of its line 6.
std::string why_not_flow(const std::string& line) {
  std::string text(kMatrix);
  const size_t begin = text.find("7->9");
  return why_not(text.replace(begin, text.find('\n', begin) - begin, line));
}

TEST(CmFile, ReadsFlowsAndTriggers) {
  const auto workload = parse_cm(kMatrix, "m.cm");
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->name, "m.cm");
  EXPECT_EQ(workload->hosts, 10U);
  ASSERT_EQ(workload->triggers.size(), 2U);
  EXPECT_EQ(workload->triggers[0].kind, WorkloadTrigger::Kind::kBarrier);
  EXPECT_EQ(workload->triggers[1].kind, WorkloadTrigger::Kind::kOneShot);
  ASSERT_EQ(workload->flows.size(), 3U);
  const auto& [first, second, third] =
      std::tie(workload->flows[0], workload->flows[1], workload->flows[2]);
  EXPECT_EQ(first.source, 3U);
  EXPECT_EQ(first.destination, 7U);
  EXPECT_EQ(first.bytes, 1'000'000U);
  EXPECT_EQ(first.start, Duration::from_ns(2500));
  EXPECT_EQ(first.trigger, kNoTrigger);
  EXPECT_THAT(first.on_sent, ElementsAre(1));
  EXPECT_EQ(second.id, 5U);
  EXPECT_EQ(second.trigger, 1U);
  EXPECT_THAT(second.on_received, ElementsAre(0));
  EXPECT_EQ(third.start, Duration::from_us(10));
  EXPECT_EQ(third.trigger, 0U);
}

TEST(CmFile, AByteOrderMarkIsSkipped) {
  EXPECT_EQ(why_not("\xEF\xBB\xBF" + std::string(kMatrix)), "it was read");
}

TEST(CmFile, ErrorHasFileLineCauseAndCure) {
  EXPECT_EQ(why_not_flow("7->10 start 0 size 1"),
            "m.cm, line 6: '10' is not a host; begin the line with SOURCE->DESTINATION, two "
            "numbers below Nodes (10)");
  EXPECT_THAT(why_not_flow("7->7 start 0 size 1"), HasSubstr("from a host to itself"));
  EXPECT_THAT(why_not_flow("->7 start 0 size 1"), HasSubstr("'' is not a host"));
  EXPECT_THAT(why_not_flow("7->9 start 0 size 0"),
              HasSubstr("the size '0' is not valid; give a whole number from 1 to"));
  EXPECT_THAT(why_not_flow("7->9 start 0"), HasSubstr("has no size; add 'size BYTES'"));
  EXPECT_THAT(why_not_flow("7->9 size 5"), HasSubstr("nothing starts the flow"));
  EXPECT_THAT(why_not_flow("7->9 start -1 size 5"), HasSubstr("the start '-1' is not valid"));
  EXPECT_THAT(why_not_flow("7->9 start 0 size"), HasSubstr("no value follows 'size'"));
  EXPECT_THAT(why_not_flow("7->9 start 0 size 5 colour 7"), HasSubstr("'colour' is not known"));
  EXPECT_THAT(why_not_flow("7->9 id 1 start 0 size 5"),
              HasSubstr("flow 1 was given in line 5 already"));
  EXPECT_THAT(why_not_flow("7->9 trigger 6 size 5"),
              HasSubstr("trigger '6' is not defined; add a line 'trigger id N oneshot'"));
}

TEST(CmFile, FlowThatNeverStartsIsAnError) {
  EXPECT_EQ(why_not_flow("7->9 start 0 size 5"),
            "m.cm, line 7: the flow never starts, for its trigger fires too seldom or waits for "
            "the flow itself; let another flow fire the trigger");
  EXPECT_THAT(why_not_flow("7->9 trigger 4 size 5 send_done_trigger 4"),
              HasSubstr("line 6: the flow never starts"));
}

TEST(CmFile, InvalidHeadersAndTriggersAreErrors) {
  EXPECT_THAT(why_not(""), HasSubstr("add a line 'Nodes N'"));
  EXPECT_THAT(why_not("Nodes 0"), HasSubstr("m.cm, line 1: write Nodes and one whole number"));
  EXPECT_THAT(why_not("Nodes 2\nConnections 1"),
              HasSubstr("line 2: 1 are announced here, but the file has 0"));
  EXPECT_THAT(why_not("Nodes 2\nTriggers 1"), HasSubstr("line 2: 1 are announced here"));
  EXPECT_THAT(why_not("Nodes 2\nfoo"), HasSubstr("'foo' begins no line of a .cm file"));
  EXPECT_THAT(why_not("Nodes 2\nFailures 1"), HasSubstr("failures belong to the experiment"));
  EXPECT_THAT(why_not("trigger oneshot"), HasSubstr("no id; give it one from 1 on"));
  EXPECT_THAT(why_not("trigger id 1"),
              HasSubstr("the trigger has no kind; write oneshot, multishot or"));
  EXPECT_THAT(why_not("trigger id 1 barrier"), HasSubstr("a barrier needs 'count N'"));
  EXPECT_THAT(why_not("trigger id 1 oneshot count 2"), HasSubstr("only a barrier has a count"));
  EXPECT_THAT(why_not("trigger id 1 often"), HasSubstr("'often' is not part of a trigger"));
  EXPECT_THAT(why_not("trigger id 1 oneshot\ntrigger id 1 oneshot"),
              HasSubstr("line 2: trigger 1 was given already"));
}

TEST(CmFile, UnreadableFileIsAnError) {
  const auto workload = read_cm_file("/no/such/file.cm");
  ASSERT_FALSE(workload);
  EXPECT_EQ(workload.error().code, ErrorCode::kSystem);
}

}  // namespace
}  // namespace pacecar::cm_file_test
