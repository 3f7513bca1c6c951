// The input of LinkEstimate, ArrivalMeter: the rate of arrivals and their least delay.
#include <gtest/gtest.h>

#include "cc/pace/arrival_meter.h"

namespace pacecar::signals_test {
namespace {

constexpr Bytes kPacket = 4200;

class CcPaceArrivalMeter : public ::testing::Test {
 protected:
  // Returns how many measurements ended.
  int arrive(Duration gap, int packets, Duration late) {
    int measured = 0;
    for (int i = 0; i < packets; ++i) {
      now_ = now_ + gap;
      measured += meter_.on_bytes(now_, kPacket, late) ? 1 : 0;
    }
    return measured;
  }

  ArrivalMeter meter_{Duration::from_ms(1), Duration::from_us(300), kPacket};
  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcPaceArrivalMeter, RateIsMeasuredOverAWindow) {
  meter_.begin(now_);
  EXPECT_GT(arrive(Duration::from_us(20), 100, Duration()), 2);
  EXPECT_NEAR(meter_.rate(), kPacket * 8 / 20e-6, 0.02 * meter_.rate());
  arrive(Duration::from_us(40), 100, Duration());
  EXPECT_NEAR(meter_.rate(), kPacket * 8 / 40e-6, 0.02 * meter_.rate());
}

TEST_F(CcPaceArrivalMeter, DelayIsTheLeastOfARoundTrip) {
  meter_.begin(now_);
  arrive(Duration::from_us(10), 100, Duration::from_us(500));
  EXPECT_EQ(meter_.delay(), Duration::from_us(500));
  arrive(Duration::from_us(10), 1, Duration::from_us(50));
  arrive(Duration::from_us(10), 30, Duration::from_us(500));
  EXPECT_EQ(meter_.delay(), Duration::from_us(50)) << "one packet met no queue";
  arrive(Duration::from_us(10), 100, Duration::from_us(500));
  EXPECT_EQ(meter_.delay(), Duration::from_us(500)) << "that packet is older than a round trip";
  arrive(Duration::from_us(10), 100, Duration::max());
  EXPECT_EQ(meter_.delay(), Duration::max());
}

// On a slow link a measurement takes longer than a window, and two packets show the rate only
// roughly.
TEST_F(CcPaceArrivalMeter, FewPacketsAreAveragedOverFourMeasurements) {
  meter_.begin(now_);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(arrive(Duration::from_us(1'500), 1, Duration()), 0);
    EXPECT_EQ(arrive(Duration::from_us(i % 2 == 0 ? 500 : 2'500), 1, Duration()), 1);
    if (i > 3) {
      EXPECT_NEAR(meter_.rate(), kPacket * 8 / 1.5e-3, 0.15 * meter_.rate()) << i;
    }
  }
}

TEST_F(CcPaceArrivalMeter, FewPacketsEndNoMeasurement) {
  meter_.begin(now_);
  now_ = now_ + Duration::from_us(500);
  EXPECT_EQ(arrive(Duration::from_us(1), 3, Duration()), 0)
      << "three packets within a window do not suffice";
  EXPECT_GT(arrive(Duration::from_us(1), 20, Duration()), 0);
  meter_.begin(now_);
  EXPECT_EQ(arrive(Duration::from_ms(5), 1, Duration()), 0) << "one packet does not suffice";
  EXPECT_EQ(arrive(Duration::from_ms(5), 1, Duration()), 1);
  EXPECT_EQ(arrive(ArrivalMeter::kLongestLook, 1, Duration()), 1)
      << "after the longest measurement one packet suffices";
}

TEST_F(CcPaceArrivalMeter, PauseLowersTheRate) {
  meter_.begin(now_);
  arrive(Duration::from_us(20), 100, Duration());
  now_ = now_ + Duration::from_ms(20);
  arrive(Duration::from_us(20), 2, Duration());
  EXPECT_LT(meter_.rate(), 0.1 * kPacket * 8 / 20e-6);
}

}  // namespace
}  // namespace pacecar::signals_test
