// The rows of `pacecar top`: rates between two looks, order, filter.
#include <gmock/gmock.h>

#include "bench/top/rows.h"
#include "transport/api/state_document.h"

namespace pacecar::test::rows_test {
namespace {

using namespace top;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Json = nlohmann::json;

struct Counts {
  uint64_t bytes = 0;
  uint64_t packets = 0;
  uint64_t again = 0;
};

Json document(pid_t pid, Duration uptime, const Counts& counts, double still_s = 0) {
  FlowStatus sending{{.sending = true,
                      .state = FlowState::kOpen,
                      .peer_address = "192.0.2.7:4791",
                      .number = 42,
                      .connections = 1}};
  sending.stats = {.backlog = 4096, .acked = counts.bytes, .sent = counts.bytes};
  sending.explanation = {.limited_by = LimitedBy::kGrant, .rate = Rate::from_gbps(3)};
  sending.rtt = Duration::from_us(70);
  if (still_s > 0) {
    sending.requests = 1;
    sending.still = Duration::from_ms(static_cast<int64_t>(still_s * 1e3));
  }
  ProcessState state;
  state.name = {.host = "node1", .program = "train", .pid = pid, .rank = std::nullopt};
  state.uptime = uptime;
  NicState nic{.info = {.name = "mlx5_0"}, .line_rate = Rate::from_gbps(100)};
  nic.identity.fill(static_cast<uint8_t>(pid));
  nic.statistics.bytes_sent = counts.bytes;
  nic.statistics.packets_sent = counts.packets;
  nic.statistics.packets_retransmitted = counts.again;
  nic.flows = {sending};
  state.nics.push_back(std::move(nic));
  return Json::parse(state_document(state));
}

Rows rows(const doctor::Evidence& evidence) {
  std::vector<std::string> notes;
  Rows made = rows_of(evidence, notes);
  EXPECT_THAT(notes, IsEmpty());
  return made;
}

TEST(TopRowsTest, TwoLooksGiveRates) {
  const Rows made = rows({{{document(1, Duration::from_s(10), {1'000, 100, 10}),
                            document(1, Duration::from_s(12), {501'000, 300, 15})}},
                          {}});
  ASSERT_THAT(made.nics, SizeIs(1));
  EXPECT_DOUBLE_EQ(made.nics[0].sends_bps.value(), 8 * 500'000 / 2.0);
  EXPECT_DOUBLE_EQ(made.nics[0].of_line.value(), 2e6 / 100e9);
  EXPECT_DOUBLE_EQ(made.nics[0].sent_again.value(), 5.0 / 200);
  EXPECT_FALSE(made.nics[0].marked) << "no packets that could be marked";
  EXPECT_DOUBLE_EQ(made.nics[0].rtt_s.value(), 70e-6);
  ASSERT_THAT(made.flows, SizeIs(1));
  EXPECT_DOUBLE_EQ(made.flows[0].goodput_bps.value(), 2e6);
  EXPECT_DOUBLE_EQ(made.flows[0].may_send_bps.value(), 3e9);
  EXPECT_EQ(made.flows[0].queue_bytes, 4096);
  EXPECT_EQ(made.flows[0].peer, "192.0.2.7:4791");
  EXPECT_FALSE(made.flows[0].trouble);
}

TEST(TopRowsTest, OneLookOrDecreasingCountsGiveNoRates) {
  const Json now = document(1, Duration::from_s(12), {1'000, 300, 15});
  for (const Json& before : {Json(), document(1, Duration::from_s(10), {9'000, 400, 20}),
                             document(1, Duration::from_s(12), {0, 0, 0})}) {
    const Rows made = rows({{{before, now}}, {}});
    EXPECT_FALSE(made.nics.at(0).sends_bps);
    EXPECT_FALSE(made.nics[0].sent_again);
    EXPECT_FALSE(made.flows.at(0).goodput_bps);
  }
}

TEST(TopRowsTest, UnreadableDocumentGivesANote) {
  std::vector<std::string> notes;
  const Rows made = rows_of({{{nullptr, Json(7)}}, {{"node2", 9, "stopped"}}}, notes);
  EXPECT_THAT(notes, SizeIs(1));
  EXPECT_THAT(made.silent, ElementsAre("pid 9 on node2: stopped"));
  EXPECT_THAT(made.flows, IsEmpty());
}

FlowRow flow(const std::string& process, bool trouble, size_t severity, double goodput_bps) {
  FlowRow row{.trouble = trouble, .severity = severity};
  row.process = process;
  row.goodput_bps = goodput_bps;
  return row;
}

std::vector<std::string> order(Column column, bool reversed) {
  std::vector<FlowRow> flows = {flow("slow", false, 8, 1), flow("broken", true, 0, 0),
                                flow("fast", false, 7, 9), flow("late", true, 2, 5)};
  sort_flows(flows, column, reversed);
  std::vector<std::string> names;
  for (const FlowRow& row : flows) names.push_back(row.process);
  return names;
}

TEST(TopRowsTest, WorstFlowIsFirstByDefault) {
  EXPECT_THAT(order(Column::kLimit, false), ElementsAre("broken", "late", "fast", "slow"));
  EXPECT_THAT(order(Column::kLimit, true), ElementsAre("slow", "fast", "late", "broken"));
  EXPECT_THAT(order(Column::kGoodput, false), ElementsAre("fast", "late", "slow", "broken"));
  EXPECT_THAT(order(Column::kProcess, false), ElementsAre("broken", "fast", "late", "slow"));
  EXPECT_THAT(order(Column::kRtt, false), ElementsAre("slow", "broken", "fast", "late"))
      << "unknown values keep the order";
}

TEST(TopRowsTest, FilterKeepsMatchingRows) {
  Rows made = rows({{{nullptr, document(1, {}, {})}, {nullptr, document(23, {}, {}, 6)}}, {}});
  Rows filtered = made;
  filter_rows(filtered, "pid 23");
  EXPECT_THAT(filtered.flows, SizeIs(1));
  EXPECT_THAT(filtered.nics, SizeIs(1));
  filtered = made;
  filter_rows(filtered, "unacknowledged");
  ASSERT_THAT(filtered.flows, SizeIs(1)) << "matched by its limit";
  EXPECT_TRUE(filtered.flows[0].trouble);
  EXPECT_DOUBLE_EQ(filtered.flows[0].still_s.value(), 6);
  filter_rows(made, "no such");
  EXPECT_THAT(made.flows, IsEmpty());
}

}  // namespace
}  // namespace pacecar::test::rows_test
