#include "bench/perf/report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "bench/cli/console.h"

namespace pacecar::perf::report_test {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using Json = nlohmann::json;

PhaseResult phase_of(Duration elapsed, uint64_t messages) {
  PhaseResult phase;
  phase.elapsed = elapsed;
  phase.messages = messages;
  phase.client.cpu_s = 0.5;
  phase.server.cpu_s = 0.25;
  phase.client.growth.packets_retransmitted = 3;
  phase.client.growth.congestion_control = "swift";
  return phase;
}

FlowView granted(double bps) {
  return {.limited_by = "grant",
          .rate_bps = bps,
          .grant_bps = bps,
          .grant_age_ns = 700,
          .epoch = 9,
          .rtt_us = 12.5};
}

// 2000 messages of 1 MiB in 2 s; the second interval is the faster one.
Json bandwidth_sample(const TestParameters& parameters) {
  IntervalMeter meter(Duration::from_s(1), 1);
  meter.count(Duration::from_s(1), 800);
  meter.finish(Duration::from_s(2), 2000);
  TestOptions options;
  options.parameters = parameters;
  return bandwidth_result(1 << 20, options, phase_of(Duration::from_s(2), 2000), meter);
}

TEST(PerfReport, BandwidthColumnsAreThoseOfPerftest) {
  EXPECT_EQ(header_line(columns_of(TestKind::kBandwidth, TestParameters())),
            " #bytes     #iterations BW peak[MiB/sec] BW average[MiB/sec] MsgRate[Mpps]");
  TestParameters gigabits;
  gigabits.gigabits = true;
  EXPECT_EQ(header_line(columns_of(TestKind::kBandwidth, gigabits)),
            " #bytes     #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]");
}

TEST(PerfReport, LatencyColumnsAreThoseOfPerftest) {
  EXPECT_EQ(header_line(columns_of(TestKind::kLatency, TestParameters())),
            " #bytes     #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] "
            "t_stdev[usec] 99% percentile[usec] 99.9% percentile[usec]");
}

TEST(PerfReport, BandwidthIsReportedInBothUnits) {
  const Json result = bandwidth_sample(TestParameters());
  EXPECT_EQ(result["MsgSize"], 1 << 20);
  EXPECT_EQ(result["n_iterations"], 2000);
  EXPECT_THAT(result["BW_average"].get<double>(), DoubleNear(1000, 1e-9));
  EXPECT_THAT(result["MsgRate"].get<double>(), DoubleNear(0.001, 1e-12));
  EXPECT_EQ(result["BW_unit"], "MiB/sec");

  TestParameters gigabits;
  gigabits.gigabits = true;
  EXPECT_THAT(bandwidth_sample(gigabits)["BW_average"].get<double>(),
              DoubleNear(1000.0 * 8 * 1048576 / 1e9, 1e-9));
}

TEST(PerfReport, PeakIsTheFastestWholeInterval) {
  IntervalMeter meter(Duration::from_ms(500), 1);
  meter.count(Duration::from_ms(500), 100);
  meter.count(Duration::from_ms(1000), 400);
  meter.finish(Duration::from_ms(1001), 450);  // a burst in 1 ms does not count
  const Json result =
      bandwidth_result(1 << 20, TestOptions(), phase_of(Duration::from_ms(1001), 450), meter);
  EXPECT_THAT(result["BW_peak"].get<double>(), DoubleNear(600, 1e-9));
  EXPECT_EQ(result["intervals"].size(), 3U);
}

TEST(PerfReport, PeakOfAShortRunIsItsAverage) {
  const IntervalMeter meter(Duration::from_s(1), 1);
  const Json result =
      bandwidth_result(1000, TestOptions(), phase_of(Duration::from_ms(10), 100), meter);
  EXPECT_GT(result["BW_peak"].get<double>(), 0);
  EXPECT_EQ(result["BW_peak"], result["BW_average"]);
}

TEST(PerfReport, LatencyHasItsStatistics) {
  Histogram half_trips;
  for (uint64_t us = 1; us <= 1000; ++us) half_trips.record(us * 1000);
  const IntervalMeter meter(Duration::from_s(1), 1);
  const Json result =
      latency_result(2, TestParameters(), phase_of(Duration::from_s(1), 1000), meter, half_trips);
  EXPECT_EQ(result["n_iterations"], 1000);
  EXPECT_EQ(result["t_min"], 1.0);
  EXPECT_EQ(result["t_max"], 1000.0);
  EXPECT_THAT(result["t_avg"].get<double>(), DoubleNear(500.5, 0.01));
  EXPECT_THAT(result["t_stdev"].get<double>(), DoubleNear(288.67, 0.1));
  EXPECT_THAT(result["t_typical"].get<double>(), DoubleNear(500, 500.0 / 128));
  EXPECT_THAT(result["percentile_99"].get<double>(), DoubleNear(990, 990.0 / 128));
  EXPECT_THAT(result["percentile_99.9"].get<double>(), DoubleNear(999, 999.0 / 128));
}

TEST(PerfReport, LatencyIntervalsHaveAnAverageOnlyWithMessages) {
  IntervalMeter meter(Duration::from_ms(1), 0);
  meter.count(Duration::from_ms(1), 10);
  meter.finish(Duration::from_ms(2), 10);
  const Json result =
      latency_result(2, TestParameters(), phase_of(Duration::from_ms(2), 20), meter, Histogram());
  EXPECT_EQ(result["intervals"][0]["t_avg"], 50.0);  // 1 ms / 10 round trips / 2
  EXPECT_TRUE(result["intervals"][1]["t_avg"].is_null());
}

TEST(PerfReport, EachEndHasItsCountersAndCpuTimePerGigabyte) {
  const Json result = bandwidth_sample(TestParameters());
  EXPECT_EQ(result["client"]["counters"]["packets_retransmitted"], 3);
  EXPECT_EQ(result["client"]["congestion_control"]["name"], "swift");
  const double gigabytes = 2000.0 * 1048576 / 1e9;
  EXPECT_THAT(result["client"]["cpu_s_per_gb"].get<double>(), DoubleNear(0.5 / gigabytes, 1e-9));
  EXPECT_THAT(result["server"]["cpu_s_per_gb"].get<double>(), DoubleNear(0.25 / gigabytes, 1e-9));
}

TEST(PerfReport, CpuColumnIsShownOnRequest) {
  TestParameters parameters;
  parameters.cpu_util = true;
  const auto columns = columns_of(TestKind::kBandwidth, parameters);
  EXPECT_THAT(header_line(columns), HasSubstr("CPU_Util[%]"));
  const auto line = result_line(columns, bandwidth_sample(parameters));
  ASSERT_TRUE(line);
  EXPECT_THAT(*line, HasSubstr(" 25.00"));  // 0.5 s of 2 s
}

TEST(PerfReport, LineHasTheNumbersOfTheResult) {
  const auto line = result_line(columns_of(TestKind::kBandwidth, TestParameters()),
                                bandwidth_sample(TestParameters()));
  ASSERT_TRUE(line);
  EXPECT_EQ(*line, " 1048576    2000        1000.00          1000.00             0.001000     ");
}

TEST(PerfReport, ResultOfThePeerWithoutTheNumbersIsRefused) {
  const auto columns = columns_of(TestKind::kBandwidth, TestParameters());
  Json result = bandwidth_sample(TestParameters());
  result["BW_peak"] = "\x1b[2J";
  const auto line = result_line(columns, result);
  ASSERT_FALSE(line);
  EXPECT_EQ(line.error().code, ErrorCode::kPeer);
  EXPECT_FALSE(result_line(columns, Json()));
}

TEST(PerfReport, ThresholdsAreCheckedAgainstBandwidthAndLatency) {
  const Json result = bandwidth_sample(TestParameters());  // 8.39 Gb/s
  TestOptions options;
  EXPECT_EQ(missed_threshold(options, result), "");
  options.min_gbits = 8.3;
  EXPECT_EQ(missed_threshold(options, result), "");
  options.min_gbits = 8.4;
  EXPECT_EQ(missed_threshold(options, result),
            "messages of 1048576 bytes: 8.389 Gb/s is below the 8.4 of --min-gbits");

  TestOptions latency;
  latency.max_usec = 10;
  EXPECT_EQ(missed_threshold(latency, {{"t_typical", 10.0}}), "");
  EXPECT_NE(missed_threshold(latency, {{"t_typical", 10.1}}), "");
}

TEST(PerfReport, ThresholdsCountersAndSamplesSurviveAnyResultOfThePeer) {
  TestOptions options;
  options.min_gbits = options.min_average = options.min_msg_rate = options.max_usec = 1;
  options.counters = {"timeouts", "", "99999999999999999999"};
  options.samples = Samples::kAsTheyCame;
  for (const Json& wrong : {Json::object(), Json({{"bytes", "many"}, {"t_typical", Json()}}),
                            Json({{"client", 5}, {"server", {{"counters", 5}}}}), Json::array(),
                            Json({{"client", {{"counters", Json::array()}}}}),
                            Json({{"client", {{"counters", {{"timeouts", "x"}}}}}})}) {
    EXPECT_NE(missed_threshold(options, wrong), "") << wrong;
    EXPECT_EQ(further_lines(options, wrong),
              (std::vector<std::string>{" timeouts: client 0, server 0", " : client 0, server 0",
                                        " 99999999999999999999: client 0, server 0"}));
  }
  options.counters = {"timeouts"};
  const Json samples = {{"client", {{"counters", {{"timeouts", 2U}}}}},
                        {"server", {{"device_counters", {{"timeouts", 3U}}}}},
                        {"samples", {1.5, "x"}}};
  EXPECT_EQ(further_lines(options, samples),
            (std::vector<std::string>{" timeouts: client 2, server 3", "#, usec", "1, 1.50"}));
}

TEST(PerfReport, OneResultIsAnObjectAndSeveralAreAList) {
  const Json result = bandwidth_sample(TestParameters());
  const Json one = report_document(TestKind::kBandwidth, TestOptions(), NicInfo(), {result});
  EXPECT_EQ(one["results"]["MsgSize"], 1 << 20);
  EXPECT_EQ(one["test_info"]["test"], "Send_BW_Test");
  EXPECT_EQ(one["schema_version"], kReportSchemaVersion);
  const Json two =
      report_document(TestKind::kBandwidth, TestOptions(), NicInfo(), {result, result});
  EXPECT_EQ(two["results"].size(), 2U);
  // Valid JSON: it parses back to itself.
  EXPECT_EQ(Json::parse(two.dump()), two);
}

TEST(PerfReport, EndReportSurvivesItsJsonAndFalseValuesAreRefused) {
  EndReport sent;
  sent.cpu_s = 1.5;
  sent.growth.duplicates = 7;
  sent.growth.congestion_control = "fixed";
  sent.growth.device_counters = {{"out_of_sequence", 3}};
  for (const bool sends : {false, true}) {
    if (sends) sent.flow = granted(5e9);
    const auto received = end_report_from_json(to_json(sent));
    ASSERT_TRUE(received);
    EXPECT_EQ(to_json(*received), to_json(sent));
    EXPECT_EQ(to_json(sent)["congestion_control"].contains("limited_by"), sends);
  }
  Json bad = to_json(sent);
  bad["counters"]["duplicates"] = -7;
  EXPECT_FALSE(end_report_from_json(bad));
  EXPECT_FALSE(end_report_from_json(Json::object()));
  for (const Json& wrong : {Json({{"\x1b[2J", 1}}), Json({{"drops", "many"}}), Json(7)}) {
    bad = to_json(sent);
    bad["device_counters"] = wrong;
    EXPECT_FALSE(end_report_from_json(bad)) << wrong;
  }
  for (const Json& wrong : {Json("\x1b[2J"), Json("magic"), Json(7)}) {
    bad = to_json(sent);
    bad["congestion_control"]["limited_by"] = wrong;
    EXPECT_FALSE(end_report_from_json(bad)) << wrong;
  }
  bad = to_json(sent);
  bad["congestion_control"]["grant_bps"] = -1;
  EXPECT_FALSE(end_report_from_json(bad));
}

TEST(PerfReport, LimitsOfTheFlowAreReportedPerIntervalAndInAll) {
  IntervalMeter meter(Duration::from_ms(10), 1);
  meter.sample(granted(3e9));
  meter.sample(granted(5e9));
  meter.count(Duration::from_ms(10), 10);
  meter.count(Duration::from_ms(20), 20);  // no flow view in this interval
  meter.sample({.limited_by = "application"});
  meter.finish(Duration::from_ms(25), 30);
  const Json result =
      bandwidth_result(1000, TestOptions(), phase_of(Duration::from_ms(25), 30), meter);
  const Json& intervals = result["intervals"];
  const Json& control = intervals[0]["congestion_control"];
  EXPECT_EQ(intervals[0]["limited_by"], Json({{"grant", 1.0}}));
  EXPECT_EQ(control["grant_bps"], 5e9) << "the newest grant";
  EXPECT_EQ(control["limited_by"], "grant");
  EXPECT_EQ(control["grant_age_ns"], 700);
  EXPECT_EQ(control["epoch"], 9);
  EXPECT_TRUE(intervals[1]["congestion_control"].is_null());
  EXPECT_TRUE(intervals[1]["limited_by"].empty());
  EXPECT_EQ(intervals[2]["congestion_control"]["limited_by"], "application");
  EXPECT_DOUBLE_EQ(result["limited_by"]["grant"].get<double>(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(result["limited_by"]["application"].get<double>(), 1.0 / 3);
}

TEST(PerfReport, JoinedIntervalsKeepTheLimitsOfBoth) {
  IntervalMeter meter(Duration::from_ms(1), 1);
  for (uint64_t i = 1; i <= IntervalMeter::kMaxIntervals + 1; ++i) {
    meter.sample(
        {.limited_by = i % 2 == 0 ? "network" : "line", .rate_bps = static_cast<double>(i)});
    meter.count(Duration::from_ms(static_cast<int64_t>(i)), i);
  }
  const Interval& joined = meter.intervals().front();
  EXPECT_EQ(joined.messages, 2U);
  EXPECT_EQ(joined.limits.shares(), Json({{"line", 0.5}, {"network", 0.5}}));
  EXPECT_EQ(joined.limits.last().rate_bps, 2);
}

TEST(PerfReport, LimitsInWordsBeginWithTheMostFrequent) {
  LimitsSeen limits;
  EXPECT_EQ(limits.words(), "");
  for (int i = 0; i < 1000; ++i) {
    limits.add(FlowView{.limited_by = i < 70 ? "network" : i < 999 ? "grant" : "line"});
  }
  EXPECT_EQ(limits.words(), "grant 93% of the time, network 7%");
}

TEST(PerfProgress, LineShowsShareRateAndTimeLeft) {
  EXPECT_EQ(cli::progress_line(0.5, "9.9 Gb/sec", Duration::from_s(3)),
            "[###############...............]  50%  9.9 Gb/sec  3 s left");
  EXPECT_EQ(cli::progress_line(0, "-", Duration()), "[..............................]   0%  -");
  EXPECT_EQ(cli::progress_line(7, "-", Duration::from_s(1)),
            "[##############################] 100%  -  0 s left");
}

}  // namespace
}  // namespace pacecar::perf::report_test
