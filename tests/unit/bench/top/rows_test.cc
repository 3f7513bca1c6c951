// The rows of `pacecar top`: rates between two looks, order, filter.
#include "bench/top/rows.h"

#include <gmock/gmock.h>

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
                            document(1, Duration::from_s(12), {5'001'000, 300, 15})}},
                          {}});
  EXPECT_THAT(made.nics, ElementsAre(Cells{" mlx5_0", "train (node1, pid 1)", "", "20 Mb/s",
                                           "0 Mb/s", "0.0%", "70 us", "2.5%", "-", "1", "0"}))
      << "no packets that could be marked";
  ASSERT_THAT(made.flows, SizeIs(1));
  EXPECT_EQ(made.flows[0].cells,
            (Cells{" grant", "train (node1, pid 1)", "to", "192.0.2.7:4791", "20 Mb/s", "3 Gb/s",
                   "70 us", "0.0%", "4096 B", "-", "mlx5_0"}));
  EXPECT_THAT(made.flows[0].why, testing::StartsWith("  train (node1, pid 1) to 192.0.2.7:4791: "));
}

TEST(TopRowsTest, OneLookOrDecreasingCountsGiveNoRates) {
  const Json now = document(1, Duration::from_s(12), {1'000, 300, 15});
  for (const Json& before : {Json(), document(1, Duration::from_s(10), {9'000, 400, 20}),
                             document(1, Duration::from_s(12), {0, 0, 0})}) {
    const Rows made = rows({{{before, now}}, {}});
    EXPECT_EQ(made.nics.at(0)[3], "-");
    EXPECT_EQ(made.nics[0][7], "-");
    EXPECT_EQ(made.flows.at(0).cells[4], "-");
  }
}

TEST(TopRowsTest, UnreadableDocumentGivesANote) {
  std::vector<std::string> notes;
  const Rows made = rows_of({{{nullptr, Json(7)}}, {{"node2", 9, "stopped"}}}, notes);
  EXPECT_THAT(notes, SizeIs(1));
  EXPECT_THAT(made.silent, ElementsAre("pid 9 on node2: stopped"));
  EXPECT_THAT(made.flows, IsEmpty());
}

std::vector<std::string> order(std::string_view column, bool reversed) {
  std::vector<FlowRow> flows(3, {.cells = Cells(kFlowTitles.size()), .why = "", .order = {}});
  const auto fill = [](FlowRow& row, const char* name, double severity, double goodput) {
    row.cells[1] = name;
    row.order[0] = {severity, -goodput};
    row.order[1].first = -goodput;
  };
  fill(flows[0], "slow", 8, 1);
  fill(flows[1], "broken", 0, 0);
  fill(flows[2], "fast", 8, 9);
  sort_flows(flows,
             static_cast<size_t>(std::ranges::find(kSortColumns, column) - kSortColumns.begin()),
             reversed);
  std::vector<std::string> names;
  for (const FlowRow& row : flows) names.push_back(row.cells[1]);
  return names;
}

TEST(TopRowsTest, FlowsAreSortedByAColumn) {
  EXPECT_THAT(order("limit", false), ElementsAre("broken", "fast", "slow"));
  EXPECT_THAT(order("limit", true), ElementsAre("slow", "fast", "broken"));
  EXPECT_THAT(order("goodput", false), ElementsAre("fast", "slow", "broken"));
  EXPECT_THAT(order("process", false), ElementsAre("broken", "fast", "slow"));
  EXPECT_THAT(order("rtt", false), ElementsAre("slow", "broken", "fast"))
      << "equal values keep the order";
}

TEST(TopRowsTest, TroubleIsWorseThanALimitAndUnknownValuesComeLast) {
  const Rows made = rows({{{nullptr, document(1, {}, {})}, {nullptr, document(2, {}, {}, 6)}}, {}});
  ASSERT_THAT(made.flows, SizeIs(2));
  EXPECT_LT(made.flows[1].order[0], made.flows[0].order[0]);
  EXPECT_LT(made.flows[1].order[6], made.flows[0].order[6]) << "the first waits for nothing";
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
  EXPECT_EQ(filtered.flows[0].cells[0], "!unacknowledged");
  EXPECT_EQ(filtered.flows[0].cells[9], "6.0 s");
  filter_rows(made, "no such");
  EXPECT_THAT(made.flows, IsEmpty());
}

}  // namespace
}  // namespace pacecar::test::rows_test
