#include "cc/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/support/one_controller.h"

namespace pacecar::registry_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

FlowEnvironment environment() {
  return {.line_rate = Rate::from_gbps(100), .mtu = 4096, .burst_bytes = 4096, .base_rtt = {}};
}

// Some controllers begin a little below the given rate.
void expect_nearly(Rate rate, Rate given, std::string_view name) {
  EXPECT_LE(rate, given) << name;
  EXPECT_GE(rate.gbps(), 0.75 * given.gbps()) << name;
}

TEST(CcRegistry, MakesEveryControllerItLists) {
  ASSERT_FALSE(controllers().empty());
  for (const ControllerInfo& info : controllers()) {
    auto controller = make_controller(info.name, environment(), Rate());
    ASSERT_TRUE(controller.has_value()) << info.name;
    EXPECT_EQ((*controller)->name(), info.name);
    expect_nearly((*controller)->decide(Instant()).rate, Rate::from_gbps(100), info.name);
    EXPECT_FALSE(info.summary.empty());
  }
}

TEST(CcRegistry, GivenRateBoundsEveryController) {
  for (const ControllerInfo& info : controllers()) {
    auto controller = make_controller(info.name, environment(), Rate::from_gbps(7));
    expect_nearly((*controller)->decide(Instant()).rate, Rate::from_gbps(7), info.name);
    controller = make_controller(info.name, environment(), Rate::from_gbps(700));
    expect_nearly((*controller)->decide(Instant()).rate, Rate::from_gbps(100), info.name);
  }
}

TEST(CcRegistry, GivenRateIsReportedAsTheLimit) {
  for (const ControllerInfo& info : controllers()) {
    if (info.name == "pace") continue;  // pace begins below the given rate
    const auto controller = make_controller(info.name, environment(), Rate::from_gbps(7));
    EXPECT_EQ((*controller)->decide(Instant()).limited_by, LimitedBy::kBudget) << info.name;
  }
}

TEST(CcRegistry, UnknownNameErrorListsAndSuggestsNames) {
  const auto slip = make_controller("swfit", environment(), Rate());
  ASSERT_FALSE(slip.has_value());
  EXPECT_EQ(slip.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(
      slip.error().message,
      "there is no congestion control 'swfit' (did you mean 'swift'?): use one of pace, swift, "
      "dcqcn, timely, hpcc, powertcp, nscc, mnscc, rccc, sird, fixed");
  const auto other = make_controller("cubic", environment(), Rate());
  EXPECT_THAT(other.error().message, AllOf(HasSubstr("use one of"), Not(HasSubstr("did you"))));
  EXPECT_FALSE(make_controller("", environment(), Rate()).has_value());
  EXPECT_THAT(make_controller("hscc", environment(), Rate()).error().message,
              HasSubstr("did you mean 'hpcc'?"))
      << "hpcc is the first of equally near names";
  EXPECT_THAT(make_controller("p", environment(), Rate()).error().message,
              Not(HasSubstr("did you")))
      << "three letters of difference are too many";
}

TEST(CcRegistry, ConstantsOfPaceReachItsReceiver) {
  const NamedValue shared{"shared", 0.75};
  const auto allocator = make_allocator("pace", environment(), 2, {{shared}}).value();
  for (uint32_t flow = 0; flow < 2; ++flow) {
    allocator->add_flow(Instant(), flow);
    allocator->on_posted(Instant(), flow, 1000);
  }
  EXPECT_NEAR(allocator->grant(0).rate.gbps(), 0.75 * 100 / 2, 1e-6);
}

TEST(CcRegistry, ConstantsAreListedAndCanBeSet) {
  for (const ControllerInfo& info : controllers()) {
    for (const ConstantInfo& constant : info.constants()) {
      const NamedValue setting{std::string(constant.name), constant.value};
      EXPECT_TRUE(make_controller(info.name, environment(), Rate(), {{setting}}).has_value())
          << info.name << " " << constant.name;
    }
  }
  const NamedValue chunks{"chunks", 5};
  const auto none = make_controller("fixed", environment(), Rate(), {{chunks}});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "congestion control 'fixed' has no constant 'chunks'");
}

TEST(CcRegistry, EveryControllerHasItsAllocator) {
  for (const ControllerInfo& info : controllers()) {
    EXPECT_TRUE(make_allocator(info.allocator, environment(), 2).has_value()) << info.name;
    EXPECT_EQ(controller_info(info.name)->allocator, info.allocator);
  }
  EXPECT_EQ(controller_info("pace")->allocator, "pace");
  EXPECT_EQ(controller_info("nscc")->allocator, "none");
  EXPECT_EQ(controller_info("rccc")->allocator, "credit");
  EXPECT_EQ(controller_info("sird")->allocator, "sird");
  EXPECT_FALSE(controller_info("cubic").has_value());
}

TEST(CcRegistry, OnlyHpccAndPowerTcpNeedTelemetry) {
  for (const ControllerInfo& info : controllers()) {
    EXPECT_EQ(info.needs_telemetry, info.name == "hpcc" || info.name == "powertcp") << info.name;
  }
}

TEST(CcRegistry, MakesEveryAllocatorItLists) {
  for (const AllocatorInfo& info : allocators()) {
    const auto allocator = make_allocator(info.name, environment(), 2).value();
    allocator->add_flow(Instant(), 1);
    const Grant grant = allocator->grant(1);
    EXPECT_TRUE(grant.is_credit ? grant.credit == 0 : grant.rate == Rate::from_gbps(100));
    EXPECT_EQ(grant.is_credit, info.name == "credit" || info.name == "sird");
    EXPECT_EQ(allocator->wants_arrivals(), info.name == "pace" || info.name == "sird");
    EXPECT_FALSE(info.summary.empty());
    allocator->remove_flow(Instant(), 1);
  }
  EXPECT_EQ(make_allocator("nine", environment(), 2).error().message,
            "there is no allocator 'nine' (did you mean 'none'?): use one of pace, credit, sird, "
            "none");
}

TEST(CcRegistry, AllocatorNoneSendsNoGrants) {
  const auto none = make_allocator("none", environment(), 4).value();
  std::array<GrantUpdate, 4> updates;
  for (uint32_t flow = 0; flow < 4; ++flow) {
    none->add_flow(Instant(), flow);
    none->on_posted(Instant(), flow, 1000);
    EXPECT_EQ(none->grant(flow).rate, Rate::from_gbps(100));
  }
  EXPECT_EQ(none->poll_grants(Instant::from_ns(1'000'000'000), updates), 0U);
  EXPECT_EQ(none->next_deadline(), Instant::never());
}

}  // namespace
}  // namespace pacecar::registry_test
