#include "bench/ab/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pacecar::ab::output_parser_test {
namespace {

using testing::ElementsAre;

TEST(OutputParser, PerftestBandwidthInMebibytesIsParsed) {
  const ParsedOutput parsed = parse_output(
      " ------------------------------------------------------------------\n"
      " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n"
      " 65536      1000             11000.50            10000.00               0.160000\n"
      " ------------------------------------------------------------------\n");
  EXPECT_NEAR(parsed.metrics.at("bw_gbps"), 10000 * 1.048576 * 8 / 1000, 1e-9);
  EXPECT_NEAR(parsed.metrics.at("bw_peak_gbps"), 11000.5 * 1.048576 * 8 / 1000, 1e-9);
  EXPECT_DOUBLE_EQ(parsed.metrics.at("message_rate_mpps"), 0.16);
  EXPECT_THAT(parsed.headline, ElementsAre("bw_gbps"));
}

TEST(OutputParser, PerftestBandwidthOfAllSizesIsParsed) {
  const ParsedOutput parsed = parse_output(
      " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
      " 2          1000             0.05               0.04                 2.5\n"
      " 4          1000             0.10               0.08                 2.5\n");
  EXPECT_DOUBLE_EQ(parsed.metrics.at("bw_gbps@2"), 0.04);
  EXPECT_DOUBLE_EQ(parsed.metrics.at("bw_gbps@4"), 0.08);
  EXPECT_THAT(parsed.headline, ElementsAre("bw_gbps@2", "bw_gbps@4"));
}

TEST(OutputParser, PerftestLatencyIsParsed) {
  const ParsedOutput parsed = parse_output(
      " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
      "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\n"
      " 2       1000          1.80           7.23         1.88                1.90           0.12"
      "            2.31                    7.23\n");
  EXPECT_DOUBLE_EQ(parsed.metrics.at("lat_min_us"), 1.80);
  EXPECT_DOUBLE_EQ(parsed.metrics.at("lat_typical_us"), 1.88);
  EXPECT_DOUBLE_EQ(parsed.metrics.at("lat_p99_us"), 2.31);
  EXPECT_DOUBLE_EQ(parsed.metrics.at("lat_p999_us"), 7.23);
  EXPECT_THAT(parsed.headline, ElementsAre("lat_typical_us", "lat_p99_us"));
}

TEST(OutputParser, PerftestLatencyOfATimedRunIsParsed) {
  const ParsedOutput parsed = parse_output(
      " #bytes        #iterations       t_avg[usec]    tps average\n"
      " 2             100000            1.97           507000.00\n");
  EXPECT_DOUBLE_EQ(parsed.metrics.at("lat_avg_us"), 1.97);
  EXPECT_EQ(parsed.metrics.size(), 1u);
}

constexpr std::string_view kNcclTests =
    "#                                                              out-of-place                "
    "       in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time"
    "   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)"
    "  (GB/s)  (GB/s)\n"
    "     1048576        262144     float     sum      -1    110.5    9.49   16.61      0    108.2"
    "    9.69   16.96      0\n"
    "     2097152        524288     float     sum      -1    180.1   11.64   20.38      1    179.0"
    "   11.72   20.50    N/A\n"
    "# Out of bounds values : 0 OK\n"
    "# Avg bus bandwidth    : 18.6125 \n";

TEST(OutputParser, NcclTestsOutputIsParsed) {
  const ParsedOutput parsed = parse_output(kNcclTests);
  EXPECT_DOUBLE_EQ(parsed.metrics.at("avg_busbw_gbs"), 18.6125);
  EXPECT_DOUBLE_EQ(parsed.metrics.at("busbw_gbs@1048576"), 16.61);
  EXPECT_DOUBLE_EQ(parsed.metrics.at("algbw_gbs@2097152"), 11.64);
  EXPECT_DOUBLE_EQ(parsed.metrics.at("time_us@1048576"), 110.5);
  EXPECT_DOUBLE_EQ(parsed.metrics.at("in_place_busbw_gbs@2097152"), 20.50);
  EXPECT_DOUBLE_EQ(parsed.metrics.at("wrong@2097152"), 1);
  EXPECT_EQ(parsed.headline.front(), "avg_busbw_gbs");
}

// As of all_reduce_perf -d all.
TEST(OutputParser, NcclTestsOutputOfSeveralTypesIsParsed) {
  const ParsedOutput parsed = parse_output(
      "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
      "8388608 2097152 float sum -1 100 10 10 0 100 10 10 0\n"
      "8388608 4194304 half sum -1 100 20 20 3 100 20 20 0\n");
  EXPECT_EQ(parsed.metrics.at("busbw_gbs@8388608 float sum -1"), 10);
  EXPECT_EQ(parsed.metrics.at("busbw_gbs@8388608 half sum -1"), 20);
  EXPECT_EQ(parsed.metrics.at("wrong@8388608 half sum -1"), 3);
  EXPECT_EQ(parsed.headline.size(), 2U);
}

TEST(OutputParser, UnknownOutputHasNoFigures) {
  for (const std::string_view output :
       {"", "\n\n", "hello 1 2 3\n", "{\"results\": 3}", "{ not json }", "}{",
        "#bytes #iterations BW average[Gb/sec]\n65536 nonsense", "# Avg bus bandwidth\n"}) {
    const ParsedOutput parsed = parse_output(output);
    EXPECT_TRUE(parsed.metrics.empty()) << output;
    EXPECT_TRUE(parsed.headline.empty()) << output;
  }
}

// Text that is cut anywhere or has a changed byte must not crash the parser.
TEST(OutputParser, DamagedOutputDoesNotCrash) {
  std::string text(kNcclTests);
  for (size_t i = 0; i < text.size(); ++i) {
    parse_output(std::string_view(text).substr(i));
    parse_output(std::string_view(text).substr(0, i));
    std::string flipped = text;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x15);
    parse_output(flipped);
  }
}

}  // namespace
}  // namespace pacecar::ab::output_parser_test
