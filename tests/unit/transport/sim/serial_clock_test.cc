#include "transport/sim/serial_clock.h"

#include <gtest/gtest.h>

namespace pacecar::serial_clock_test {
namespace {

// The reference is one division for the whole burst, so that no rounding error accumulates.
Instant exact_end(Bytes bytes, uint64_t bps) {
  const auto bit_ns = static_cast<unsigned __int128>(bytes) * 8'000'000'000U;
  return Instant::from_ns(static_cast<int64_t>((bit_ns + bps - 1) / bps));
}

class SerialClockTest : public testing::TestWithParam<uint64_t> {};

TEST_P(SerialClockTest, IsExactToTheNanosecondForABurst) {
  const uint64_t bps = GetParam();
  SerialClock clock(Rate::from_bps(bps));
  Bytes total = 0;
  for (Bytes i = 0; i < 10'000; ++i) {
    const Bytes size = 64 + (i / 3 * 37) % 4096;  // often equal to the previous size
    total += size;
    ASSERT_EQ(clock.send(size, Instant()), exact_end(total, bps)) << "packet " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(OddRates, SerialClockTest,
                         testing::Values(8'000, 999'999'937, 3'141'592'653, 100'000'000'000,
                                         399'999'999'979, 1'600'000'000'000));

TEST(SerialClock, StartsAgainAfterAnIdleTime) {
  SerialClock clock(Rate::from_gbps(8));  // one byte per nanosecond
  clock.send(100, Instant());
  EXPECT_TRUE(clock.busy(Instant::from_ns(99)));
  EXPECT_FALSE(clock.busy(Instant::from_ns(100)));
  EXPECT_EQ(clock.send(50, Instant::from_ns(1000)), Instant::from_ns(1050));
}

TEST(SerialClock, ANewRateActsFromTheNextPacketOn) {
  SerialClock clock(Rate::from_gbps(8));
  clock.send(100, Instant());
  clock.set_rate(Rate::from_gbps(4));
  EXPECT_EQ(clock.free_at(), Instant::from_ns(100));
  EXPECT_EQ(clock.send(100, Instant()), Instant::from_ns(300));
}

}  // namespace
}  // namespace pacecar::serial_clock_test
