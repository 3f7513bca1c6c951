#include "bench/perf/options.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace pacecar::perf::options_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

Result<ParsedOptions> parse(TestKind kind, std::vector<const char*> flags) {
  flags.insert(flags.begin(), "pacecar");
  return parse_test_options(kind, static_cast<int>(flags.size()), flags.data());
}

TestOptions bw(std::vector<const char*> flags) {
  const auto parsed = parse(TestKind::kBandwidth, std::move(flags));
  EXPECT_TRUE(parsed) << parsed.error().message;
  return parsed ? parsed->options : TestOptions();
}

std::string error_of(TestKind kind, std::vector<const char*> flags) {
  const auto parsed = parse(kind, std::move(flags));
  if (parsed) return "";
  EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
  return parsed.error().message;
}

TEST(PerfOptions, ServerNeedsNoFlag) {
  const TestOptions options = bw({});
  EXPECT_THAT(options.host, IsEmpty());
  EXPECT_EQ(options.port, 18515);
  EXPECT_THAT(options.sizes, ElementsAre(65536));
  EXPECT_EQ(options.parameters.iterations, 1000U);
  EXPECT_EQ(options.parameters.tx_depth, 8U);
  EXPECT_EQ(options.parameters.rx_depth, 16U);
}

TEST(PerfOptions, LatencyDefaultsToTwoBytes) {
  const auto parsed = parse(TestKind::kLatency, {"host"});
  ASSERT_TRUE(parsed);
  EXPECT_THAT(parsed->options.sizes, ElementsAre(2));
}

TEST(PerfOptions, LatencyHasOneConnection) {
  EXPECT_TRUE(parse(TestKind::kLatency, {"host", "-q", "1"}));
  EXPECT_THAT(error_of(TestKind::kLatency, {"host", "-q", "2"}), HasSubstr("--qp"));
}

TEST(PerfOptions, AnIpv6HostMayBeInBrackets) { EXPECT_EQ(bw({"[fd00::1]"}).host, "[fd00::1]"); }

TEST(PerfOptions, APortMayFollowTheHost) {
  EXPECT_EQ(bw({"[fd00::1]:9000"}).host, "[fd00::1]");
  EXPECT_EQ(bw({"[fd00::1]:9000"}).port, 9000);
  EXPECT_EQ(bw({"fd00::1:9"}).host, "fd00::1:9") << "an IPv6 address";
  EXPECT_EQ(bw({"host:9000", "-p", "9000"}).port, 9000);
}

TEST(PerfOptions, NoMoreMessagesAreInFlightThanThereAre) {
  EXPECT_EQ(bw({"host", "-n", "3"}).parameters.tx_depth, 3);
  EXPECT_EQ(bw({"host", "-n", "3"}).parameters.rx_depth, 3);
}

TEST(PerfOptions, EndlessTestsRepeatEveryFewSeconds) {
  EXPECT_EQ(bw({"host", "--run_infinitely"}).parameters.duration_s, 5);
  EXPECT_EQ(bw({"host", "--run_infinitely", "-n", "9"}).parameters.duration_s, 0);
}

TEST(PerfOptions, OrderOfFlagsDoesNotMatter) {
  const std::vector<std::vector<const char*>> groups = {
      {"server"}, {"-s", "4K"}, {"-D", "2.5"}, {"-q", "3"}, {"-b"}, {"--report_gbits"}};
  std::vector<size_t> order = {0, 1, 2, 3, 4, 5};
  do {
    std::vector<const char*> flags;
    for (const size_t i : order) flags.insert(flags.end(), groups[i].begin(), groups[i].end());
    const TestOptions options = bw(flags);
    ASSERT_EQ(options.host, "server");
    ASSERT_THAT(options.sizes, ElementsAre(4096));
    ASSERT_EQ(options.parameters.duration_s, 2.5);
    ASSERT_EQ(options.parameters.connections, 3U);
    ASSERT_TRUE(options.parameters.bidirectional);
    ASSERT_TRUE(options.parameters.gigabits);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(PerfOptions, AllSizesArePerftestsPowersOfTwo) {
  const TestOptions options = bw({"-a", "server"});
  ASSERT_EQ(options.sizes.size(), 23U);
  EXPECT_EQ(options.sizes.front(), 2U);
  EXPECT_EQ(options.sizes.back(), 1U << 23);
}

TEST(PerfOptions, RateLimitHasPerftestsUnits) {
  EXPECT_EQ(bw({"h", "--rate_limit", "2.5"}).parameters.rate_bps, 2'500'000'000U);
  EXPECT_EQ(bw({"h", "--rate_limit", "3", "--rate_units", "M"}).parameters.rate_bps,
            3U * 8 * 1024 * 1024);
  EXPECT_EQ(bw({"h", "--rate_units", "p", "-s", "100", "--rate_limit", "5000"}).parameters.rate_bps,
            5000U * 8 * 100);
}

TEST(PerfOptions, TransportParametersBecomeSettings) {
  const TestOptions options =
      bw({"h", "--cc", "fixed", "-m", "1024", "-T", "104", "--rate_limit", "1"});
  EXPECT_THAT(transport_settings(options.parameters, "soft:udp:lo"),
              ElementsAre(Pair("PACECAR_NICS", "soft:udp:lo"), Pair("PACECAR_CC", "fixed"),
                          Pair("PACECAR_MTU", "1024"), Pair("PACECAR_TC", "104"),
                          Pair("PACECAR_RATE_MAX", "1000000000")));
  EXPECT_THAT(transport_settings(TestParameters(), ""), IsEmpty());
}

TEST(PerfOptions, PerftestsFlagsBecomeSettings) {
  const TestOptions options = bw({"h", "-S", "3", "-u", "14", "--tclass", "104"});
  EXPECT_THAT(transport_settings(options.parameters, ""),
              ElementsAre(Pair("PACECAR_TC", "104"), Pair("PACECAR_SL", "3"),
                          Pair("PACECAR_TIMEOUT", "536ms")));
  EXPECT_EQ(bw({"h", "-u", "1"}).parameters.timeout_ms, 100U) << "the shortest timeout allowed";
  EXPECT_EQ(bw({"h", "-u", "31"}).parameters.timeout_ms, kMaxTimeoutMs);
  EXPECT_THAT(bw({"h", "-x", "3", "--pkey_index", "0"}).settings,
              ElementsAre(Pair("PACECAR_GID_INDEX", "3"), Pair("PACECAR_PKEY", "0")))
      << "settings of this end alone";
  EXPECT_EQ(bw({"h", "-d", "mlx5_0", "-i", "2"}).nics, "mlx5_0:2");
}

TEST(PerfOptions, ErrorNamesTheUnknownFlagAndNotItsValue) {
  const auto bandwidth = TestKind::kBandwidth;
  EXPECT_THAT(error_of(bandwidth, {"-Q", "50", "h"}), HasSubstr("no -Q as perftest has it: "));
  EXPECT_THAT(error_of(bandwidth, {"--cq-mod=50", "h"}), HasSubstr("no --cq-mod as perftest"));
  EXPECT_THAT(error_of(bandwidth, {"-L64", "h"}), HasSubstr("no -L as perftest has it: "));
  EXPECT_THAT(error_of(bandwidth, {"--iter", "5", "h"}), HasSubstr("did you mean '--iters'"));
}

TEST(PerfOptions, JsonFlagTakesAnOptionalFile) {
  EXPECT_EQ(bw({"h", "--json"}).json_file, "-");
  EXPECT_EQ(bw({"--json", "h"}).json_file, "-") << "'h' is the host, not a file";
  EXPECT_EQ(bw({"--json", "x.json", "h"}).json_file, "x.json");
  EXPECT_EQ(bw({"--json=x", "h"}).json_file, "x");
}

TEST(PerfOptions, JsonFileHasADefaultName) {
  EXPECT_EQ(bw({"--out_json"}).json_file, "perftest_out.json");
  EXPECT_EQ(bw({"--out_json_file", "x.json", "--out_json"}).json_file, "x.json");
}

TEST(PerfOptions, HelpIsNotAnError) {
  const auto parsed = parse(TestKind::kBandwidth, {"--help"});
  ASSERT_TRUE(parsed);
  EXPECT_THAT(parsed->help, HasSubstr("Exit codes: 0"));
  EXPECT_THAT(parsed->help, HasSubstr("--duration"));
}

TEST(PerfOptions, MistakesNameTheFlagAndWhatItTakes) {
  const auto bandwidth = TestKind::kBandwidth;
  EXPECT_THAT(error_of(bandwidth, {"h", "-t", "257"}), HasSubstr("from 1 to 256"));
  EXPECT_THAT(error_of(bandwidth, {"h", "-n", "0"}), HasSubstr("--iters"));
  EXPECT_THAT(error_of(bandwidth, {"h", "-n", "-5"}), HasSubstr("--iters"));
  EXPECT_THAT(error_of(bandwidth, {"h", "-D", "nan"}), HasSubstr("--duration"));
  EXPECT_THAT(error_of(bandwidth, {"h", "-D", "0"}), HasSubstr("--duration"));
  EXPECT_THAT(error_of(bandwidth, {"h", "-s", "99999999999G"}), HasSubstr("--size"));
  EXPECT_THAT(error_of(bandwidth, {"h", "-p", "65536"}), HasSubstr("--port"));
  EXPECT_THAT(error_of(bandwidth, {"h", "-p"}), HasSubstr("--port"));
  EXPECT_THAT(error_of(bandwidth, {"h", "--nonsense"}), HasSubstr("--nonsense"));
  EXPECT_THAT(error_of(bandwidth, {"h", "second"}), HasSubstr("second"));
  EXPECT_THAT(error_of(bandwidth, {"h", "-n", "5", "-D", "5"}), HasSubstr("excludes"));
  EXPECT_THAT(error_of(bandwidth, {"h", "-a", "-s", "5"}), HasSubstr("excludes"));
  EXPECT_THAT(error_of(bandwidth, {"h", "-p", "0"}), HasSubstr("-p 0"));
  EXPECT_THAT(error_of(bandwidth, {"h", "-a", "--rate_limit", "5", "--rate_units", "p"}),
              HasSubstr("-s instead of -a"));
  EXPECT_THAT(error_of(bandwidth, {"h", "--rate_limit", "20000"}), HasSubstr("--rate_limit"));
  EXPECT_THAT(error_of(bandwidth, {"h", "--rate_units", "g"}), HasSubstr("--rate_limit"));
  EXPECT_THAT(error_of(bandwidth, {"h", "-s", "1G", "-q", "4"}), HasSubstr("lower -s"));
  EXPECT_THAT(error_of(bandwidth, {"h", "--max-usec", "5"}), HasSubstr("--max-usec"));
  EXPECT_THAT(error_of(TestKind::kLatency, {"h", "-b"}), HasSubstr("-b"));
}

TEST(PerfParameters, ParametersSurviveTheirJson) {
  const TestParameters sent =
      bw({"h", "-D", "3", "-q", "7", "-t", "200", "-b", "--data_validation", "--report_gbits",
          "--cpu_util", "--cc", "swift", "-m", "4096", "-T", "8", "--rate_limit", "25"})
          .parameters;
  const auto received = test_parameters_from_json(to_json(sent));
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_EQ(to_json(*received), to_json(sent));
}

TEST(PerfParameters, ValuesOfThePeerAreChecked) {
  const nlohmann::json good = to_json(TestParameters());
  ASSERT_TRUE(test_parameters_from_json(good));
  const auto with = [&good](const char* key, nlohmann::json value) {
    nlohmann::json changed = good;
    changed[key] = std::move(value);
    return test_parameters_from_json(changed);
  };
  for (const auto& [key, value] : std::vector<std::pair<const char*, nlohmann::json>>{
           {"iterations", 0},
           {"iterations", -1},
           {"iterations", "1000"},
           {"duration_s", -1.0},
           {"duration_s", 1e300},
           {"connections", 0},
           {"connections", 257},
           {"tx_depth", 0},
           {"rx_depth", 257},
           {"validate", 1},
           {"congestion_control", "\x1b[31m"},
           {"congestion_control", std::string(33, 'x')},
           {"tos", 256},
           {"rate_bps", nullptr}}) {
    const auto result = with(key, value);
    ASSERT_FALSE(result) << key << " = " << value;
    EXPECT_EQ(result.error().code, ErrorCode::kPeer);
    EXPECT_THAT(result.error().message, HasSubstr(key));
  }
  nlohmann::json missing = good;
  missing.erase("tx_depth");
  EXPECT_FALSE(test_parameters_from_json(missing));
  EXPECT_FALSE(test_parameters_from_json(nlohmann::json::array()));
  EXPECT_FALSE(test_parameters_from_json(nullptr));
}

}  // namespace
}  // namespace pacecar::perf::options_test
