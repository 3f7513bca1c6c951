// A process's flows as figures, and figures as the text that Prometheus reads.
#include <gmock/gmock.h>

#include <regex>
#include <set>
#include <sstream>

#include "bench/metrics/exposition.h"
#include "transport/api/state_document.h"
#include "transport/metrics/metric_table.h"

namespace pacecar::test::figures_test {
namespace {

using namespace metrics;
using testing::HasSubstr;
using testing::Not;

FlowStatus sending(LimitedBy limit, Duration rtt) {
  FlowStatus flow{{.sending = true, .state = FlowState::kOpen, .connections = 2}};
  flow.stats = {.backlog = 100, .in_flight = 40};
  flow.explanation = {.limited_by = limit, .rate = Rate::from_gbps(8), .grant = Rate::from_gbps(4)};
  flow.rtt = rtt;
  flow.writes = 3;
  return flow;
}

NicState nic_of(std::vector<FlowStatus> flows) {
  NicState nic{.info = {.name = "mlx5_0"}, .line_rate = Rate::from_gbps(400)};
  nic.statistics.congestion_control = "pace";
  nic.flows = std::move(flows);
  return nic;
}

TEST(MetricsFiguresTest, FiguresAreSumsOverTheFlows) {
  FlowStatus still{{.state = FlowState::kBroken, .connections = 1}};
  still.requests = 2;
  still.still = kStallLimit;
  FlowStatus short_of_it = sending(LimitedBy::kNetwork, Duration::from_us(30));
  short_of_it.requests = 1;
  short_of_it.path_mtu = 1500;
  short_of_it.still = kStallLimit - Duration::from_ns(1);
  const NicFigures figures =
      figures_of(nic_of({sending(LimitedBy::kGrant, Duration::from_us(10)),
                         sending(LimitedBy::kGrant, Duration::from_us(20)), short_of_it,
                         sending(LimitedBy::kLine, Duration()), still}));
  EXPECT_EQ(figures.flows_sending, 4);
  EXPECT_EQ(figures.flows_receiving, 1);
  EXPECT_EQ(figures.flows_broken, 1);
  EXPECT_EQ(figures.connections_sending, 8);
  EXPECT_EQ(figures.limited_by_grant, 2);
  EXPECT_EQ(figures.limited_by_network, 1);
  EXPECT_EQ(figures.limited_by_line, 1);
  EXPECT_EQ(figures.rate_bytes_per_second, 4e9) << "bytes per second";
  EXPECT_EQ(figures.granted_to_us_bytes_per_second, 2e9);
  EXPECT_EQ(figures.backlog_bytes, 400);
  EXPECT_EQ(figures.unacknowledged_writes, 12);
  EXPECT_EQ(figures.stalled_sending, 0);
  EXPECT_EQ(figures.flows_of_small_packets, 1);
  EXPECT_EQ(figures.stalled_receiving, 1);
  EXPECT_EQ(figures.longest_stall_seconds, kStallLimit.seconds());
  EXPECT_DOUBLE_EQ(figures.rtt_min_seconds, 10e-6);
  EXPECT_DOUBLE_EQ(figures.rtt_median_seconds, 20e-6);
  EXPECT_DOUBLE_EQ(figures.rtt_max_seconds, 30e-6)
      << "a flow without a round-trip time is left out";
}

TEST(MetricsTableTest, NamesAndKeysAreUniqueAndAsPrometheusWantsThem) {
  std::set<std::string_view> names;
  std::set<std::string_view> keys;
  for (const Series& series : kSeries) {
    EXPECT_TRUE(keys.insert(series.key).second) << series.key;
    if (series.name.empty()) continue;
    EXPECT_TRUE(names.insert(series.name).second) << series.name;
    EXPECT_FALSE(series.name.ends_with("_total")) << series.name;
    EXPECT_TRUE(std::regex_match(std::string(series.name), std::regex("[a-z][a-z_]*")));
    EXPECT_TRUE(series.help.ends_with('.')) << series.name;
  }
}

std::string text_of(const NicState& nic) {
  Exposition page;
  const ProcessFigures process{
      .program = "a\"b\\c", .rank = 3, .number = {}, .uptime = 1.5, .nics = {figures_of(nic)}};
  add_processes(page, {&process, 1});
  return page.take();
}

TEST(MetricsTextTest, QuotesAreEscapedAndUnknownValuesAreLeftOut) {
  NicState nic = nic_of({});
  nic.statistics.bytes_sent = 12;
  nic.statistics.device_counters = {{"out\nof", 5}};
  const std::string text = text_of(nic);
  const std::string labels = R"(program="a\"b\\c",rank="3",nic="mlx5_0",cc="pace")";
  EXPECT_THAT(text, HasSubstr("# TYPE pacecar_sent_bytes_total counter\npacecar_sent_bytes_total{" +
                              labels + "} 12\n"));
  EXPECT_THAT(text, HasSubstr("pacecar_limited_flows{" + labels + R"(,limit="grant"} 0)"));
  EXPECT_THAT(text, HasSubstr("pacecar_device_events_total{" + labels + R"(,counter="out?of"} 5)"));
  EXPECT_THAT(text, Not(HasSubstr("pacecar_rtt_min_seconds{")));
  EXPECT_THAT(text, HasSubstr("pacecar_process_uptime_seconds{program=\"a\\\"b\\\\c\",rank=\"3\"} "
                              "1.5\n"));
}

TEST(MetricsTextTest, NumberOfSeriesDoesNotDependOnTheFlows) {
  const auto lines = [](size_t flows) {
    const std::string text = text_of(
        nic_of(std::vector<FlowStatus>(flows, sending(LimitedBy::kGrant, Duration::from_us(9)))));
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines(1), lines(5000));
}

}  // namespace
}  // namespace pacecar::test::figures_test
