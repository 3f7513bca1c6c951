#include "transport/base/params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace pacecar::params_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Result<Params> load(std::vector<ParamSetting> settings) { return load_params(settings, nullptr); }

Result<Params> load_one(const std::string& name, const std::string& value) {
  return load({{name, value, "environment"}});
}

size_t row_of(std::string_view name) {
  const auto table = param_table();
  size_t row = 0;
  while (row < table.size() && table[row].name != name) ++row;
  return row;
}

std::vector<std::string> warnings_of(const std::string& name) {
  std::vector<std::string> warnings;
  const std::vector<ParamSetting> settings{{name, "1", "environment"}};
  EXPECT_TRUE(load_params(settings, &warnings).has_value());
  return warnings;
}

TEST(Params, DefaultsAreThoseOfTheTable) {
  const auto params = load({});
  ASSERT_TRUE(params);
  EXPECT_EQ(params->cc, "pace");
  EXPECT_EQ(params->paths, 4U);
  EXPECT_EQ(params->weight, 1U);
  EXPECT_EQ(params->spin, Duration::from_us(50));
  EXPECT_EQ(params->socket_buffer, 8U << 20);
  EXPECT_EQ(params->progress, Progress::kInline);
  EXPECT_FALSE(params->require);
  EXPECT_EQ(params->origin(row_of("PACECAR_CC")), "default");
}

// Each parameter accepts its own default.
TEST(Params, FormattedDefaultsLoadAsDefaults) {
  const Params defaults;
  for (size_t row = 0; row < param_table().size(); ++row) {
    const auto params = load_one(std::string(param_table()[row].name), defaults.text(row));
    ASSERT_TRUE(params) << params.error().message;
    EXPECT_EQ(params->text(row), defaults.text(row));
    EXPECT_EQ(params->origin(row), "environment");
    EXPECT_EQ(defaults.origin(row), "default");
  }
}

TEST(Params, NamesAreUniqueAndDocumented) {
  std::set<std::string_view> names;
  for (const ParamInfo& info : param_table()) {
    EXPECT_TRUE(info.name.starts_with("PACECAR_")) << info.name;
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.doc.empty()) << info.name;
    EXPECT_NE(info.doc.back(), '.') << info.name;
  }
}

TEST(Params, AutoIsStoredAsZeroWhereItIsAllowed) {
  EXPECT_EQ(load({})->engines, 0U);
  EXPECT_EQ(load_one("PACECAR_ENGINES", "1")->engines, 1U);
  EXPECT_EQ(load_one("PACECAR_ENGINES", "auto")->engines, 0U);
  EXPECT_EQ(load_one("PACECAR_ENGINES", "auto")->text(row_of("PACECAR_ENGINES")), "auto");
  EXPECT_EQ(load_one("PACECAR_ENGINES", "8")->engines, 8U);
  for (const char* bad : {"0", "9", "Auto", "", "autos"}) {
    EXPECT_FALSE(load_one("PACECAR_ENGINES", bad)) << bad;
  }
  EXPECT_FALSE(load_one("PACECAR_PATHS", "auto"));
  EXPECT_THAT(load_one("PACECAR_ENGINES", "0").error().message,
              HasSubstr("a whole number from 1 to 8, or auto"));
}

TEST(Params, EveryTypeIsParsed) {
  const auto params = load({{"PACECAR_NICS", "mlx5_0,^mlx5_2", "x"},
                            {"PACECAR_REQUIRE", "1", "x"},
                            {"PACECAR_PATHS", "64", "x"},
                            {"PACECAR_EXPERT_SOCKET_BUFFER", "512K", "x"},
                            {"PACECAR_RATE_MAX", "25G", "x"},
                            {"PACECAR_LINE_RATE", "1500000", "x"},
                            {"PACECAR_EXPERT_SPIN", "800ns", "x"},
                            {"PACECAR_TIMEOUT", "250ms", "x"},
                            {"PACECAR_INTEGRITY", "header", "x"},
                            {"PACECAR_PORTS", "40000-40063", "x"},
                            {"PACECAR_LOG", "trace", "x"}});
  ASSERT_TRUE(params) << params.error().message;
  EXPECT_EQ(params->nics, "mlx5_0,^mlx5_2");
  EXPECT_TRUE(params->require);
  EXPECT_EQ(params->paths, 64U);
  EXPECT_EQ(params->socket_buffer, 512U << 10);
  EXPECT_EQ(params->rate_max, Rate::from_gbps(25));
  EXPECT_EQ(params->line_rate, Rate::from_bps(1'500'000));
  EXPECT_EQ(params->spin, Duration::from_ns(800));
  EXPECT_EQ(params->timeout, Duration::from_ms(250));
  EXPECT_EQ(params->integrity, Integrity::kHeader);
  EXPECT_EQ(params->ports.first, 40000);
  EXPECT_EQ(params->ports.last, 40063);
  EXPECT_EQ(params->log, LogLevel::kTrace);
}

TEST(Params, ExpertNamesMayLackTheWord) {
  EXPECT_EQ(load_one("PACECAR_EXPERT_SPIN", "3us")->spin, Duration::from_us(3));
  EXPECT_EQ(load_one("PACECAR_SPIN", "3us")->spin, Duration::from_us(3));
  EXPECT_EQ(load({{"PACECAR_SPIN", "3us", "x"}, {"PACECAR_EXPERT_SPIN", "4us", "y"}})->spin,
            Duration::from_us(4));
  std::vector<std::string> warnings;
  EXPECT_TRUE(
      load_params(std::vector<ParamSetting>{{"PACECAR_EXPERT_CC", "swift", "x"}}, &warnings));
  EXPECT_EQ(warnings.size(), 1U);
}

TEST(Params, DecimalsMakeWholeNumbers) {
  ParamInfo info{.name = {}, .type = ParamType::kRate, .doc = {}, .range = {}, .choices = {}};
  EXPECT_EQ(parse_param(info, "1.6T"), 1'600'000'000'000U);
  EXPECT_EQ(parse_param(info, "0.0000000005T"), std::nullopt);
  EXPECT_EQ(parse_param(info, "2.5K"), 2500U);
  for (const char* wrong : {"1.T", ".5T", "1.2.3T", "1.6", "1.0005K"}) {
    EXPECT_EQ(parse_param(info, wrong), std::nullopt) << wrong;
  }
  info.type = ParamType::kInteger;
  EXPECT_EQ(parse_param(info, "2.0"), std::nullopt);
}

TEST(Params, BoundsBelongToTheRange) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"PACECAR_PATHS", "1"},
                                                        {"PACECAR_PATHS", "64"},
                                                        {"PACECAR_MTU", "0"},
                                                        {"PACECAR_MTU", "256"},
                                                        {"PACECAR_MTU", "16K"},
                                                        {"PACECAR_TC", "0"},
                                                        {"PACECAR_TC", "252"},
                                                        {"PACECAR_EXPERT_WINDOW_PACKETS", "64"},
                                                        {"PACECAR_EXPERT_WINDOW_PACKETS", "16384"},
                                                        {"PACECAR_EXPERT_SPIN", "0s"},
                                                        {"PACECAR_EXPERT_SPIN", "1s"},
                                                        {"PACECAR_TIMEOUT", "100ms"},
                                                        {"PACECAR_TIMEOUT", "3600s"},
                                                        {"PACECAR_PORTS", "0"},
                                                        {"PACECAR_PORTS", "1-65535"},
                                                        {"PACECAR_PORTS", "40000-40000"}}) {
    EXPECT_TRUE(load_one(name, value)) << name << "=" << value;
  }
}

TEST(Params, OutOfRangeAndMalformedValuesAreRefused) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"PACECAR_PATHS", "0"},
           {"PACECAR_PATHS", "65"},
           {"PACECAR_PATHS", ""},
           {"PACECAR_PATHS", "-1"},
           {"PACECAR_PATHS", "+4"},
           {"PACECAR_PATHS", " 4"},
           {"PACECAR_PATHS", "4 "},
           {"PACECAR_PATHS", "0x4"},
           {"PACECAR_PATHS", "4K"},
           {"PACECAR_PATHS", "99999999999999999999"},
           {"PACECAR_MTU", "255"},
           {"PACECAR_MTU", "16385"},
           {"PACECAR_MTU", "1KB"},
           {"PACECAR_TC", "2"},
           {"PACECAR_TC", "256"},
           {"PACECAR_EXPERT_WINDOW_PACKETS", "1000"},
           {"PACECAR_EXPERT_WINDOW_PACKETS", "32"},
           {"PACECAR_EXPERT_SPIN", "50"},
           {"PACECAR_EXPERT_SPIN", "us"},
           {"PACECAR_EXPERT_SPIN", "50 us"},
           {"PACECAR_EXPERT_SPIN", "2s"},
           {"PACECAR_TIMEOUT", "99ms"},
           {"PACECAR_RATE_MAX", "18446744073709551615T"},
           {"PACECAR_RATE_MAX", "11T"},
           {"PACECAR_RATE_MAX", "100"},  // of megabits?
           {"PACECAR_LINE_RATE", "999k"},
           {"PACECAR_WEIGHT", "0"},
           {"PACECAR_WEIGHT", "65"},
           {"PACECAR_REQUIRE", "2"},
           {"PACECAR_REQUIRE", "yes"},
           {"PACECAR_PORTS", ""},
           {"PACECAR_PORTS", "40000"},
           {"PACECAR_PORTS", "40001-40000"},
           {"PACECAR_PORTS", "0-9"},
           {"PACECAR_PORTS", "40000-65536"},
           {"PACECAR_PORTS", "40000-40001-"},
           {"PACECAR_LOG", ""},
           {"PACECAR_LOG", "warn|info"},
           {"PACECAR_LOG", "WARN"}}) {
    EXPECT_FALSE(load_one(name, value)) << name << "=" << value;
  }
}

TEST(Params, ErrorNamesVariableOriginValueAndRemedy) {
  const auto params = load({{"PACECAR_PATHS", "900", "/etc/pacecar.conf"}});
  ASSERT_FALSE(params);
  EXPECT_EQ(params.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(
      params.error().message,
      "PACECAR_PATHS='900' (/etc/pacecar.conf) is not valid: give a whole number from 1 to 64");
}

TEST(Params, ErrorShowsAHostileValueSafely) {
  const auto params = load_one("PACECAR_PATHS", "\x1b[2J" + std::string(500, 'x'));
  ASSERT_FALSE(params);
  EXPECT_THAT(params.error().message, AllOf(HasSubstr("'?[2Jxxx"), HasSubstr("x...'")));
  EXPECT_LT(params.error().message.size(), 250U);
}

TEST(Params, EachTypeDescribesAcceptedValues) {
  const auto accepted = [](std::string_view name) {
    return describe_accepted(param_table()[row_of(name)]);
  };
  EXPECT_EQ(accepted("PACECAR_NICS"), "any text");
  EXPECT_EQ(accepted("PACECAR_REQUIRE"), "0 or 1");
  EXPECT_EQ(accepted("PACECAR_EXPERT_WINDOW_PACKETS"), "a power of two from 64 to 16384");
  EXPECT_EQ(accepted("PACECAR_TC"), "a multiple of 4 from 0 to 252");
  EXPECT_EQ(accepted("PACECAR_MTU"), "bytes, 0 or from 256 to 16K");
  EXPECT_EQ(accepted("PACECAR_RATE_MAX"), "bits per second, 0 or from 1M to 10T, such as 25G");
  EXPECT_EQ(accepted("PACECAR_TIMEOUT"),
            "a time from 100ms to 3600s with its unit (ns, us, ms or s)");
  EXPECT_EQ(accepted("PACECAR_PORTS"), "a range of ports such as 40000-40100, or 0");
  EXPECT_EQ(accepted("PACECAR_INTEGRITY"), "one of auto, full, header");
}

TEST(Params, LastSettingWins) {
  const auto params =
      load({{"PACECAR_CC", "fixed", "/etc/pacecar.conf"}, {"PACECAR_CC", "swift", "command line"}});
  ASSERT_TRUE(params);
  EXPECT_EQ(params->cc, "swift");
  EXPECT_EQ(params->origin(row_of("PACECAR_CC")), "command line");
}

TEST(Params, OverriddenSettingMayBeInvalid) {
  EXPECT_TRUE(load(
      {{"PACECAR_PATHS", "many", "/etc/pacecar.conf"}, {"PACECAR_PATHS", "8", "environment"}}));
}

TEST(Params, UnknownNameIsAWarningWithTheNearestName) {
  EXPECT_THAT(warnings_of("PACECAR_PATH"),
              ElementsAre("PACECAR_PATH (environment) is not a parameter of Pacecar: did you mean "
                          "PACECAR_PATHS?"));
  EXPECT_THAT(warnings_of("PACECAR_TIMEUOT"), ElementsAre(HasSubstr("PACECAR_TIMEOUT?")));
  EXPECT_THAT(warnings_of("PACECAR_PPATHS"), ElementsAre(HasSubstr("PACECAR_PATHS?")));
  EXPECT_THAT(warnings_of("PACECAR_RATEMAX"), ElementsAre(HasSubstr("PACECAR_RATE_MAX?")));
  EXPECT_THAT(warnings_of("PACECAR_PATHS"), IsEmpty());
}

TEST(Params, DissimilarUnknownNameGetsNoSuggestion) {
  EXPECT_THAT(warnings_of("PACECAR_FLUX_CAPACITOR"), ElementsAre(HasSubstr("pacecar info -c")));
  EXPECT_THAT(warnings_of("PACECAR_" + std::string(100'000, 'A')),
              ElementsAre(HasSubstr("pacecar info -c")));
}

TEST(ParamFile, SettingsAreReadAndCommentsSkipped) {
  const auto settings = parse_param_file(
      "# a comment\n\nPACECAR_CC=swift\r\n  PACECAR_NICS = a=b #c \n\t# more\nPACECAR_PCAP=", "f");
  ASSERT_TRUE(settings) << settings.error().message;
  ASSERT_EQ(settings->size(), 3U);
  EXPECT_EQ(settings->at(0).name, "PACECAR_CC");
  EXPECT_EQ(settings->at(0).value, "swift");
  EXPECT_EQ(settings->at(0).origin, "f");
  EXPECT_EQ(settings->at(1).name, "PACECAR_NICS");
  EXPECT_EQ(settings->at(1).value, "a=b #c");
  EXPECT_EQ(settings->at(2).value, "");
}

TEST(ParamFile, BadLineNamesFileAndLine) {
  for (const char* line : {"PACECAR_CC", "=swift", " = "}) {
    const auto settings =
        parse_param_file("# x\n\n" + std::string(line) + "\nPACECAR_CC=swift\n", "/tmp/a.conf");
    ASSERT_FALSE(settings) << line;
    EXPECT_EQ(settings.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(settings.error().message,
                AllOf(HasSubstr("line 3 of /tmp/a.conf"), HasSubstr("NAME=VALUE")));
  }
}

}  // namespace
}  // namespace pacecar::params_test
