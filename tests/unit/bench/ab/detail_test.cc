// The points of a run that a report shows: few, and without loss of shape.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/ab/report_data.h"

namespace pacecar::ab::detail_test {
namespace {

constexpr Bytes kPacket = 4000;

// Each flow sends a packet every `every` microseconds, one microsecond after the flow before it.
RunResult run_of(size_t flows, size_t every, size_t samples) {
  RunResult run;
  run.nics.data_packets_sent = flows * samples / every;
  run.nics.data_bytes_sent = run.nics.data_packets_sent * kPacket;
  for (size_t flow = 0; flow < flows; ++flow) {
    Series rate{"flow", Duration::from_us(1), std::vector<double>(samples, 0)};
    for (size_t i = flow; i < samples; i += every) rate.values[i] = kPacket * 8 * 1e6;
    run.rates.push_back(std::move(rate));
  }
  return run;
}

TEST(RunDetail, RatesAreAveragedOverSeveralPackets) {
  const auto detail = run_detail(run_of(4, 4, 1000));
  const auto& rate = detail["rates"][3];
  EXPECT_EQ(rate["interval_us"], 32) << "eight packets per flow";
  for (const double gbps : rate["values"]) EXPECT_NEAR(gbps, 8, 1.5);
  for (const double jain : detail["fairness"]["values"]) EXPECT_GT(jain, 0.98);
}

TEST(RunDetail, ShortRunKeepsItsShape) {
  const auto detail = run_detail(run_of(2, 50, 200));
  EXPECT_EQ(detail["rates"][0]["values"].size(), 20U);
}

TEST(RunDetail, LongRunHasALimitedNumberOfPoints) {
  const auto detail = run_detail(run_of(1, 1, 2000));
  EXPECT_LE(detail["rates"][0]["values"].size(), 500U);
}

TEST(RunDetail, ReasonsAreKeptWhereTheyChange) {
  RunResult run = run_of(6, 4, 2000);
  std::vector<LimitedBy> reasons(2000, LimitedBy::kGrant);
  reasons[700] = LimitedBy::kNetwork;  // a single sample
  std::fill(reasons.begin() + 1000, reasons.end(), LimitedBy::kApplication);
  for (int flow = 0; flow < 6; ++flow) {
    run.limits.push_back({.name = "flow",
                          .interval = Duration::from_us(1),
                          .allowed = std::vector<double>(2000, 8e9),
                          .limited_by = reasons});
  }
  const auto limits = run_detail(run)["limits"];
  ASSERT_EQ(limits.size(), 4U) << "limited number of flows";
  EXPECT_EQ(limits[0]["interval_us"], 8);
  EXPECT_EQ(limits[0]["allowed"].size(), 250U);
  EXPECT_EQ(limits[0]["allowed"][7], 8);
  EXPECT_TRUE(limits[0]["grant"].empty());
  EXPECT_EQ(limits[0]["rate"]["interval_us"], 32) << "averaged over several packets";
  EXPECT_EQ(limits[0]["limited_by"].dump(), R"([[0,"grant"],[125,"application"]])");
}

TEST(RunDetail, QueuesKeepTheirPeaks) {
  RunResult run;
  run.queues.push_back({"leaf 0 > host 0", Duration::from_us(1), std::vector<double>(2000, 7)});
  run.queues[0].values[1234] = 123456;
  const auto queue = run_detail(run)["queues"][0];
  EXPECT_EQ(queue["interval_us"], 4);
  EXPECT_EQ(queue["values"][1234 / 4], 123500) << "rounded to four digits";
  EXPECT_EQ(queue["values"][0], 7);
}

TEST(RunDetail, ZeroCountersOfLinksAreOmitted) {
  RunResult run;
  run.links.push_back({.name = "leaf 0 > host 3", .stats = {}, .utilisation = 0.5});
  const auto link = run_detail(run)["links"][0];
  EXPECT_EQ(link["from"], "leaf 0");
  EXPECT_EQ(link["to"], "host 3");
  EXPECT_EQ(link["utilisation"], 0.5);
  EXPECT_FALSE(link.contains("dropped"));
}

}  // namespace
}  // namespace pacecar::ab::detail_test
