#include "transport/verbs/device_clock.h"

#include <gtest/gtest.h>

namespace pacecar::device_clock_test {
namespace {

constexpr uint64_t kAllBits = ~uint64_t{0};

// A device whose clock reads 0 at our time `zero`, and runs at `khz`.
struct Device {
  uint64_t khz = 1'000'000;
  uint64_t mask = kAllBits;
  Duration zero = Duration::from_s(-1000);

  uint64_t stamp(Instant at) const {
    const auto ns = static_cast<unsigned __int128>((at - Instant() - zero).ns());
    return static_cast<uint64_t>(ns * khz / 1'000'000) & mask;
  }
};

class DeviceClockTest : public testing::Test {
 protected:
  void use(const Device& device) {
    device_ = device;
    clock_ = DeviceClock(device.khz, device.mask);
  }
  // The lateness of an event that is seen `late` after it happened; the look before was `looked`
  // ago.
  Duration see(Duration late, Duration looked = Duration::from_s(1)) {
    now_ = now_ + Duration::from_us(10);
    return clock_.lateness(device_.stamp(now_), now_ + late, now_ + late - looked);
  }

  Device device_;
  DeviceClock clock_{device_.khz, device_.mask};
  Instant now_ = Instant::from_ns(1'000'000'000);
};

void expect_near(Duration value, Duration wanted, Duration error) {
  EXPECT_LE((value - wanted).ns(), error.ns()) << value.us();
  EXPECT_GE((value - wanted).ns(), -error.ns()) << value.us();
}

TEST_F(DeviceClockTest, LatenessIsMeasuredAgainstTheSoonestEvent) {
  for (const uint64_t khz : {1'000'000U, 156'250U, 332'667U}) {
    use({.khz = khz});
    EXPECT_EQ(see(Duration::from_us(2)), Duration()) << "there is no reference yet";
    expect_near(see(Duration::from_us(502)), Duration::from_us(500), Duration::from_ns(600));
    EXPECT_EQ(see(Duration::from_us(1)), Duration()) << "the soonest event is the reference";
    expect_near(see(Duration::from_us(502)), Duration::from_us(501), Duration::from_ns(600));
  }
}

TEST_F(DeviceClockTest, LatenessIsAtMostTheTimeSinceTheLastLook) {
  see(Duration());
  EXPECT_EQ(see(Duration::from_us(70), Duration::from_us(30)), Duration::from_us(30));
}

TEST_F(DeviceClockTest, WrappingClockIsFollowed) {
  use({.khz = 1'000'000, .mask = (1 << 24) - 1});  // every 17 ms
  see(Duration());
  for (int i = 0; i < 10'000; ++i) {  // 100 ms
    ASSERT_LE(see(Duration()).ns(), 100);
    expect_near(see(Duration::from_us(40)), Duration::from_us(40), Duration::from_ns(100));
  }
  now_ = now_ + Duration::from_ms(12);  // too long to know how the clock has wrapped
  EXPECT_EQ(see(Duration::from_us(40)), Duration());
  EXPECT_TRUE(clock_.trusted());
}

TEST_F(DeviceClockTest, ClockErrorWithinTheToleranceIsAccepted) {
  for (const uint64_t khz : {999'400U, 1'000'600U}) {
    use({.khz = khz});
    clock_ = DeviceClock(1'000'000, kAllBits);
    for (int i = 0; i < 100'000; ++i) ASSERT_LE(see(Duration()).ns(), 10);
    now_ = now_ + Duration::from_s(1);  // such an old reference proves little
    EXPECT_LE(see(Duration()).ns(), 0);
    EXPECT_TRUE(clock_.trusted());
  }
}

TEST_F(DeviceClockTest, ZeroStampGivesNoLateness) {
  see(Duration());
  EXPECT_EQ(clock_.lateness(0, now_, now_ - Duration::from_ms(1)), Duration());
}

// `emptied` may be later than `now`: that alone does not make the stamp implausible.
TEST_F(DeviceClockTest, EventInTimeIsPlausibleWheneverTheQueueWasEmptied) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(see(Duration(), Duration::from_ms(-1)), Duration());
  }
  EXPECT_TRUE(clock_.trusted());
}

TEST_F(DeviceClockTest, LatenessOfStrangeClocksIsBoundedUntilTheyAreDistrusted) {
  using Stamp = uint64_t (*)(const Device&, Instant, uint64_t);
  const auto strange = std::to_array<Stamp>({
      [](const Device&, Instant, uint64_t) { return uint64_t{0}; },
      [](const Device&, Instant, uint64_t) { return uint64_t{12345}; },
      [](const Device& device, Instant at, uint64_t) { return device.stamp(at) / 2; },
      [](const Device& device, Instant at, uint64_t i) {
        return device.stamp(at) + (i % 8 == 0 ? uint64_t{1} << 40 : 0);
      },
      [](const Device& device, Instant at, uint64_t i) {
        return device.stamp(at) - (i % 8 == 0 ? uint64_t{1} << 40 : 0);
      },
  });
  for (const Stamp stamp : strange) {
    use({});
    for (uint64_t i = 0; i < 100'000; ++i) {
      now_ = now_ + Duration::from_us(10);
      const Duration looked = Duration::from_us(5 + static_cast<int64_t>(i % 100));
      const Duration late = clock_.lateness(stamp(device_, now_, i), now_, now_ - looked);
      ASSERT_GE(late.ns(), 0);
      ASSERT_LE(late.ns(), looked.ns());
    }
    EXPECT_FALSE(clock_.trusted());
    EXPECT_EQ(see(Duration::from_us(50)), Duration());
  }
}

}  // namespace
}  // namespace pacecar::device_clock_test
