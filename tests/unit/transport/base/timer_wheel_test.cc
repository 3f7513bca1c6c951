#include "transport/base/timer_wheel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace pacecar::timer_wheel_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Instant at(int64_t ns) { return Instant::from_ns(ns); }

std::vector<uint32_t> expired(TimerWheel& wheel, Instant now) {
  std::array<uint32_t, 16> ids{};
  const size_t count = wheel.expire(now, ids);
  return {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count)};
}

TEST(TimerWheel, TimerFiresExactlyAtItsDeadline) {
  for (const int64_t delay : {1L, 1023L, 1024L, 70'000L, 5'000'000L, 3'600'000'000'000L}) {
    TimerWheel wheel(1, at(12'345));
    wheel.arm(0, at(12'345 + delay));
    EXPECT_THAT(expired(wheel, at(12'345 + delay - 1)), IsEmpty()) << delay;
    EXPECT_TRUE(wheel.armed(0));
    EXPECT_THAT(expired(wheel, at(12'345 + delay)), ElementsAre(0)) << delay;
    EXPECT_FALSE(wheel.armed(0));
    EXPECT_EQ(wheel.next_deadline(), Instant::never());
  }
}

TEST(TimerWheel, TimersFireInOrderOfDeadlines) {
  TimerWheel wheel(4, at(0));
  wheel.arm(0, at(9'000'000));
  wheel.arm(1, at(2'000));
  wheel.arm(2, at(100'000));
  wheel.arm(3, at(8'000'000'000));
  EXPECT_THAT(expired(wheel, at(10'000'000'000)), ElementsAre(1, 2, 0, 3));
}

TEST(TimerWheel, ArmingAgainMovesTheTimer) {
  TimerWheel wheel(1, at(0));
  wheel.arm(0, at(5'000));
  wheel.arm(0, at(50'000));
  EXPECT_THAT(expired(wheel, at(49'999)), IsEmpty());
  EXPECT_THAT(expired(wheel, at(50'000)), ElementsAre(0));
}

TEST(TimerWheel, CancelledTimerDoesNotFire) {
  TimerWheel wheel(2, at(0));
  wheel.arm(0, at(5'000));
  wheel.arm(1, at(5'000));
  wheel.cancel(0);
  wheel.cancel(0);
  EXPECT_THAT(expired(wheel, at(5'000)), ElementsAre(1));
}

TEST(TimerWheel, DeadlineNeverCancelsTheTimer) {
  TimerWheel wheel(1, at(0));
  wheel.arm(0, at(5'000));
  wheel.arm(0, Instant::never());
  EXPECT_FALSE(wheel.armed(0));
  EXPECT_EQ(wheel.next_deadline(), Instant::never());
}

TEST(TimerWheel, PastDeadlineIsDueAtOnce) {
  TimerWheel wheel(1, at(1'000'000));
  wheel.arm(0, at(3));
  EXPECT_EQ(wheel.next_deadline(), at(3));
  EXPECT_THAT(expired(wheel, at(1'000'000)), ElementsAre(0));
}

TEST(TimerWheel, FullOutputLosesNoTimer) {
  TimerWheel wheel(3, at(0));
  for (uint32_t id = 0; id < 3; ++id) wheel.arm(id, at(1'000 + 100'000 * int64_t{id}));
  std::array<uint32_t, 2> ids{};
  EXPECT_EQ(wheel.expire(at(1'000'000), std::span(ids).first(0)), 0U);
  EXPECT_EQ(wheel.expire(at(1'000'000), ids), 2U);
  EXPECT_THAT(ids, ElementsAre(0, 1));
  EXPECT_LE(wheel.next_deadline(), at(201'000));
  EXPECT_EQ(wheel.expire(at(1'000'000), ids), 1U);
  EXPECT_EQ(ids[0], 2U);
}

// A driver that sleeps until next_deadline() must reach a distant timer on time, in few steps.
TEST(TimerWheel, NextDeadlineLeadsToTheTimerInFewSteps) {
  constexpr Instant kDeadline = at(86'400'000'000'123);
  TimerWheel wheel(1, at(0));
  wheel.arm(0, kDeadline);
  int steps = 0;
  Instant now;
  do {
    ASSERT_GT(wheel.next_deadline(), now);
    now = wheel.next_deadline();
    ++steps;
  } while (expired(wheel, now).empty());
  EXPECT_EQ(now, kDeadline);
  EXPECT_LE(steps, 10);
}

TEST(TimerWheelDeathTest, UnknownIdAborts) {
  TimerWheel wheel(2, at(0));
  EXPECT_DEATH(wheel.arm(2, at(1)), "id");
}

}  // namespace
}  // namespace pacecar::timer_wheel_test
