#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cc/registry.h"

namespace pacecar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

FlowEnvironment environment() {
  return {.line_rate = Rate::from_gbps(100), .mtu = 4096, .burst_bytes = 4096, .base_rtt = {}};
}

TEST(CcRegistry, MakesEveryControllerItLists) {
  ASSERT_FALSE(controllers().empty());
  for (const ControllerInfo& info : controllers()) {
    auto controller = make_controller(info.name, environment(), Rate());
    ASSERT_TRUE(controller.has_value()) << info.name;
    EXPECT_EQ((*controller)->name(), info.name);
    EXPECT_EQ((*controller)->decide(Instant()).rate, Rate::from_gbps(100));
    EXPECT_FALSE(info.summary.empty());
  }
}

TEST(CcRegistry, GivenRateBoundsEveryController) {
  for (const ControllerInfo& info : controllers()) {
    auto controller = make_controller(info.name, environment(), Rate::from_gbps(7));
    EXPECT_EQ((*controller)->decide(Instant()).rate, Rate::from_gbps(7)) << info.name;
    controller = make_controller(info.name, environment(), Rate::from_gbps(700));
    EXPECT_EQ((*controller)->decide(Instant()).rate, Rate::from_gbps(100)) << info.name;
  }
}

TEST(CcRegistry, UnknownNameIsAnErrorThatHelps) {
  const auto slip = make_controller("swfit", environment(), Rate());
  ASSERT_FALSE(slip.has_value());
  EXPECT_EQ(slip.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(slip.error().message,
            "there is no congestion control 'swfit' (did you mean 'swift'?): use one of swift, "
            "fixed");
  const auto other = make_controller("cubic", environment(), Rate());
  EXPECT_THAT(other.error().message, AllOf(HasSubstr("use one of"), Not(HasSubstr("did you"))));
  EXPECT_FALSE(make_controller("", environment(), Rate()).has_value());
}

TEST(CcRegistry, AllocatorStartsAtLineRate) {
  const auto allocator = make_allocator(Rate::from_gbps(25), 2);
  allocator->add_flow(Instant(), 1);
  EXPECT_EQ(allocator->grant(1).rate, Rate::from_gbps(25));
}

}  // namespace
}  // namespace pacecar
