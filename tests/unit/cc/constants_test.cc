#include "cc/constants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "cc/registry.h"
#include "tests/support/one_controller.h"

namespace pacecar::constants_test {
namespace {

using ::testing::HasSubstr;

struct Sample {
  double share = 0.5;
  int count = 3;
  Rate rate = Rate::from_gbps(1);
  Duration time = Duration::from_us(4);

  static constexpr auto table() {
    using C = Sample;
    return std::to_array<Constant<C>>({
        {"share", "1", 0, 1, &C::share, "a share"},
        {"count", "packets", 1, 9, &C::count, "a number"},
        {"rate", "Mb/s", 1, 1e6, &C::rate, "a rate"},
        {"time", "us", 0, 100, &C::time, "a time"},
    });
  }
};

std::string refusal(const NamedValue& setting) {
  const auto made = make_constants<Sample>("sample", {&setting, 1});
  EXPECT_FALSE(made.has_value());
  return made ? "" : made.error().message;
}

TEST(CcConstants, SettingsReplaceDefaultsInTheirUnits) {
  const NamedValue settings[] = {{"time", 0.25}, {"count", 9}, {"rate", 2.5}, {"time", 7.5}};
  const Sample made = make_constants<Sample>("sample", settings).value();
  EXPECT_EQ(made.share, 0.5);
  EXPECT_EQ(made.count, 9);
  EXPECT_EQ(made.rate, Rate::from_bps(2'500'000));
  EXPECT_EQ(made.time, Duration::from_ns(7500)) << "the last setting of a constant counts";
}

TEST(CcConstants, ConstantsAreListedWithTheirDefaults) {
  const std::vector<ConstantInfo> rows = list_constants<Sample>();
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[1].name, "count");
  EXPECT_EQ(rows[1].value, 3);
  EXPECT_EQ(rows[2].value, 1000);
  EXPECT_EQ(rows[3].value, 4);
}

TEST(CcConstants, RefusalsNameTheAcceptedConstantsAndValues) {
  EXPECT_EQ(
      refusal({"shares", 1}),
      "congestion control 'sample' has no constant 'shares': it has share, count, rate, time");
  EXPECT_EQ(refusal({"count", 10}),
            "constant 'count' of congestion control 'sample' cannot be 10: use 1 to 9 packets");
  EXPECT_THAT(refusal({"share", -0.5}), HasSubstr("cannot be -0.5: use 0 to 1"));
  EXPECT_THAT(refusal({"rate", std::numeric_limits<double>::quiet_NaN()}), HasSubstr("cannot be"));
}

TEST(CcConstants, EveryControllersDefaultsAreInRange) {
  for (const ControllerInfo& controller : controllers()) {
    std::set<std::string_view> names;
    for (const ConstantInfo& row : controller.constants()) {
      SCOPED_TRACE(controller.name);
      SCOPED_TRACE(row.name);
      EXPECT_TRUE(names.insert(row.name).second) << "the name is listed twice";
      EXPECT_LE(row.least, row.value);
      EXPECT_GE(row.most, row.value);
      EXPECT_FALSE(row.unit.empty() || row.meaning.empty());
    }
  }
}

TEST(CcConstants, SettingsReachTheController) {
  const FlowEnvironment environment{.line_rate = Rate::from_gbps(100),
                                    .base_rtt = Duration::from_us(10)};
  const NamedValue window[] = {{"window_round_trips", 3}};
  const auto controller = make_controller("nscc", environment, Rate(), window).value();
  const auto usual = make_controller("nscc", environment, Rate()).value();
  EXPECT_NEAR(controller->decide(Instant()).window, 2 * usual->decide(Instant()).window, 1);
  EXPECT_THAT(make_controller("fixed", environment, Rate(), window).error().message,
              HasSubstr("'fixed' has no constant 'window_round_trips'"));
}

}  // namespace
}  // namespace pacecar::constants_test
