// FlowDivision: which core a write goes to, and which part of the flow's limits each core has.
#include "transport/engine/cores/flow_division.h"

#include <gtest/gtest.h>

namespace pacecar::flow_division_test {
namespace {

constexpr Bytes kWrite = 256 * 1024;
constexpr Rate kFast = Rate::from_gbps(100);

// Keeps all cores busy; in each period achieved[i] bytes of core i are acknowledged.
void run(FlowDivision& division, std::span<const Bytes> achieved, int periods) {
  static Instant now = Instant::from_ns(1'000'000'000);
  for (uint32_t i = 0; i < achieved.size(); ++i) division.on_posted(i, kWrite);
  for (int period = 0; period < periods; ++period) {
    for (uint32_t i = 0; i < achieved.size(); ++i) division.on_acked(i, achieved[i], now);
    now = now + FlowDivision::kPeriod;
  }
}

TEST(FlowDivision, SmallWritesStayOnTheFirstCoreUntilItsBacklogIsLarge) {
  FlowDivision division(2, 1);
  Bytes posted = 0;
  while (division.choose(64 * 1024, kFast, 2) == 0) {
    division.on_posted(0, 64 * 1024);
    posted += 64 * 1024;
  }
  EXPECT_EQ(posted, FlowDivision::kSmallBacklog);
}

TEST(FlowDivision, LargeWriteGoesToTheCoreThatCompletesItFirst) {
  FlowDivision division(2, 0);
  EXPECT_EQ(division.choose(kWrite, kFast, 2), 0U);
  division.on_posted(0, kWrite);
  EXPECT_EQ(division.choose(kWrite, kFast, 2), 1U);
  division.on_posted(1, kWrite);
  EXPECT_TRUE(division.on_done(1, kWrite));
  EXPECT_EQ(division.choose(kWrite, kFast, 2), 1U);
  EXPECT_EQ(division.choose(kWrite, kFast, 1), 0U) << "the peer has one core";
}

TEST(FlowDivision, ASlowFlowStaysOnOneCore) {
  for (uint32_t home = 0; home < 4; ++home) {
    FlowDivision division(3, home);
    for (int i = 0; i < 5; ++i) {
      const uint32_t core = division.choose(kWrite, Rate::from_gbps(1), 3);
      EXPECT_EQ(core, home % 3);
      division.on_posted(core, kWrite);
    }
  }
}

TEST(FlowDivision, IdleCoreTakesNoPartFromABusyOne) {
  FlowDivision division(2, 0);
  const FlowLimits flow{.rate = kFast, .window = 1000, .burst = 100};
  division.on_posted(1, kWrite);
  EXPECT_EQ(division.part(1), FlowDivision::kWhole);
  EXPECT_EQ(division.limits(1, flow).rate, kFast);
  division.on_posted(0, kWrite);
  EXPECT_EQ(division.limits(0, flow).rate, Rate::from_gbps(50));
  EXPECT_EQ(division.limits(1, flow).window, 500U);
  EXPECT_EQ(division.limits(1, flow).burst, 50U);
}

TEST(FlowDivision, PartsFollowTheRatesOfBusyCores) {
  FlowDivision division(2, 0);
  run(division, std::array<Bytes, 2>{3'000'000, 1'000'000}, 100);
  EXPECT_NEAR(division.part(0), FlowDivision::kWhole * 3 / 4, FlowDivision::kWhole / 50);
  // Later writes are divided in the same ratio.
  std::array<Bytes, 2> posted{};
  for (int i = 0; i < 400; ++i) {
    const uint32_t core = division.choose(kWrite, kFast, 2);
    division.on_posted(core, kWrite);
    posted[core] += kWrite;
  }
  EXPECT_NEAR(static_cast<double>(posted[0]) / static_cast<double>(posted[1]), 3.0, 0.2);
}

TEST(FlowDivision, StalledCoreKeepsASmallPartAndRecovers) {
  FlowDivision division(2, 0);
  run(division, std::array<Bytes, 2>{4'000'000, 0}, 1000);
  EXPECT_GT(division.part(1), 0U);
  run(division, std::array<Bytes, 2>{2'000'000, 2'000'000}, 200);
  EXPECT_NEAR(division.part(1), FlowDivision::kWhole / 2, FlowDivision::kWhole / 20);
}

TEST(FlowDivision, PartsAddUpToNoMoreThanTheLimits) {
  FlowDivision division(8, 0);
  run(division, std::array<Bytes, 8>{7, 6, 5, 4, 3, 2, 1, 0}, 50);
  const FlowLimits flow{.rate = kFast, .window = 1'000'003, .credit = 5'000'017};
  Bytes rate = 0;
  Bytes window = 0;
  Bytes more = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    division.on_sent(i, i * 1000);
    const FlowLimits limits = division.limits(i, flow);
    rate += limits.rate.bps();
    window += limits.window;
  }
  for (uint32_t i = 0; i < 8; ++i) more += division.limits(i, flow).credit - i * 1000;
  EXPECT_LE(rate, flow.rate.bps());
  EXPECT_LE(window, flow.window);
  EXPECT_LE(more, flow.credit - 28'000);
}

}  // namespace
}  // namespace pacecar::flow_division_test
