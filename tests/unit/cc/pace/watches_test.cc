// The parts that a link estimate learns from, each alone: witnesses of a queue, and the rate of
// arrivals.
#include <gtest/gtest.h>

#include "cc/pace/arrival_meter.h"
#include "cc/pace/witnesses.h"

namespace pacecar::watches_test {
namespace {

constexpr Duration us(int64_t count) { return Duration::from_us(count); }
Instant at(int64_t count) { return Instant() + us(count); }

// --- witnesses ---

constexpr Duration kWindow = us(100);

// Whether a flow whose only bytes came `before` us ahead of the queue is a witness. Another flow
// sends every 100 us in between.
bool is_witness(int64_t before) {
  Witnesses witnesses{kWindow};
  witnesses.on_bytes(at(1000), 3);
  for (int64_t later = 100; later <= before; later += 100) witnesses.on_bytes(at(1000 + later), 4);
  witnesses.on_queue(at(1000 + before));
  witnesses.on_bytes(at(2000), 3);
  return !witnesses.gone(at(2000));
}

TEST(CcPaceWatchWitness, FlowSeenWithinTwoWindowsIsAWitness) {
  EXPECT_TRUE(is_witness(0));
  EXPECT_TRUE(is_witness(99));
  EXPECT_TRUE(is_witness(199));
  EXPECT_FALSE(is_witness(200));
}

TEST(CcPaceWatchWitness, FlowsBeforeAPauseOfTwoWindowsAreNoWitnesses) {
  for (const int64_t pause : {199, 200}) {
    Witnesses witnesses{kWindow};
    witnesses.on_bytes(at(1000), 3);
    witnesses.on_bytes(at(1000 + pause), 4);
    witnesses.on_queue(at(1000 + pause));
    witnesses.on_bytes(at(3000), 3);
    EXPECT_EQ(witnesses.gone(at(3000)), pause == 200);
  }
}

TEST(CcPaceWatchWitness, WitnessesAreGoneWhenNoneSendsForAWindow) {
  Witnesses witnesses{kWindow};
  EXPECT_FALSE(witnesses.gone(at(9000))) << "no witnesses are known";
  witnesses.on_bytes(at(1000), 3);
  witnesses.on_queue(at(1050));
  witnesses.on_bytes(at(1060), 4);
  EXPECT_FALSE(witnesses.gone(at(1149)));
  EXPECT_TRUE(witnesses.gone(at(1150)));
  witnesses.on_bytes(at(1160), 3 + 64);  // counts as flow 3
  EXPECT_FALSE(witnesses.gone(at(1259)));
  EXPECT_TRUE(witnesses.gone(at(1260)));
  witnesses.forget();
  EXPECT_FALSE(witnesses.gone(at(9000)));
}

// --- the rate of arrivals ---

class CcPaceWatchArrivals : public testing::Test {
 protected:
  static constexpr Bytes kPacket = 1000;

  CcPaceWatchArrivals() { meter_.begin(now_); }
  // Bytes arrive after `gap`. True when a measurement ends.
  bool arrive(Duration gap, Bytes bytes, Duration delay = us(1)) {
    now_ = now_ + gap;
    return meter_.on_bytes(now_, bytes, delay);
  }

  Instant now_ = at(1000);
  ArrivalMeter meter_{us(400), us(150), kPacket};
};

TEST_F(CcPaceWatchArrivals, MeterMeasuresFourTimesInAWindow) {
  EXPECT_FALSE(arrive(us(99), 6 * kPacket));
  EXPECT_TRUE(arrive(us(1), 0));
  EXPECT_DOUBLE_EQ(meter_.rate(), 6000 * 8 / 100e-6);
  EXPECT_FALSE(arrive(us(50), 6 * kPacket));
  EXPECT_TRUE(arrive(us(50), 6 * kPacket));
  EXPECT_DOUBLE_EQ(meter_.rate(), 18'000 * 8 / 200e-6) << "over the window so far";
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(arrive(us(100), 6 * kPacket));
  EXPECT_DOUBLE_EQ(meter_.rate(), 30'000 * 8 / 400e-6) << "without the first 100 us";
  EXPECT_DOUBLE_EQ(meter_.most_lately(), 36'000 * 8 / 400e-6);
}

TEST_F(CcPaceWatchArrivals, FewPacketsEndNoMeasurementBeforeAWindowEnds) {
  EXPECT_FALSE(arrive(us(100), 6 * kPacket - 1));
  EXPECT_FALSE(arrive(us(299), 0));
  EXPECT_TRUE(arrive(us(1), 0));
  EXPECT_FALSE(arrive(us(400), 2 * kPacket - 1));
  EXPECT_FALSE(arrive(ArrivalMeter::kLongestLook - us(401), 0));
  EXPECT_TRUE(arrive(us(1), 0)) << "after the longest measurement few bytes suffice";
}

TEST_F(CcPaceWatchArrivals, DelayIsTheLeastOfTheLastRoundTrip) {
  EXPECT_TRUE(arrive(us(100), 6 * kPacket, us(5)));
  EXPECT_EQ(meter_.delay(), us(5));
  arrive(us(50), 6 * kPacket, us(8));
  EXPECT_TRUE(arrive(us(50), 6 * kPacket, us(9)));
  EXPECT_EQ(meter_.delay(), us(5)) << "5 us were measured 100 us ago";
  EXPECT_TRUE(arrive(us(100), 6 * kPacket, Duration::max()));
  EXPECT_EQ(meter_.delay(), us(8)) << "5 us were measured 200 us ago and no longer count";
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(arrive(us(100), 6 * kPacket, Duration::max()));
  EXPECT_EQ(meter_.delay(), Duration::max());
}

TEST_F(CcPaceWatchArrivals, MeasurementOfARoundTripAgoDoesNotCount) {
  ArrivalMeter meter(us(400), us(200), kPacket);
  meter.begin(now_);
  for (const int64_t delay : {5, 8, 9}) {
    now_ = now_ + us(100);
    EXPECT_TRUE(meter.on_bytes(now_, 6 * kPacket, us(delay)));
  }
  EXPECT_EQ(meter.delay(), us(8));
}

TEST_F(CcPaceWatchArrivals, BeginResetsTheMeter) {
  EXPECT_TRUE(arrive(us(100), 100 * kPacket, us(5)));
  arrive(us(10), 50 * kPacket, us(2));
  meter_.begin(now_);
  EXPECT_TRUE(arrive(us(100), 6 * kPacket, us(7)));
  EXPECT_DOUBLE_EQ(meter_.rate(), 6000 * 8 / 100e-6);
  EXPECT_EQ(meter_.delay(), us(7));
}

}  // namespace
}  // namespace pacecar::watches_test
