// The parts that a link budget learns from, each alone: witnesses of a queue, reordering, bursts,
// the rate of arrivals, policers, neighbors that keep a queue.
#include <gtest/gtest.h>

#include <vector>

#include "cc/pace/arrival_meter.h"
#include "cc/pace/arrival_order.h"
#include "cc/pace/burst_use.h"
#include "cc/pace/greedy_neighbor.h"
#include "cc/pace/policer_watch.h"
#include "cc/pace/witnesses.h"

namespace pacecar::watches_test {
namespace {

constexpr Duration us(int64_t count) { return Duration::from_us(count); }
Instant at(int64_t count) { return Instant() + us(count); }

// --- witnesses ---

constexpr Duration kWindow = us(100);
constexpr Duration kPause = us(10);
constexpr Duration kMemory = us(1'000'000);

// Whether a flow whose only bytes came `before` us ahead of the queue is a witness. Another flow
// sends every 100 us in between.
bool is_witness(int64_t before) {
  Witnesses witnesses{kWindow, kMemory};
  witnesses.on_bytes(at(1000), 3);
  for (int64_t later = 100; later <= before; later += 100) witnesses.on_bytes(at(1000 + later), 4);
  witnesses.on_queue(at(1000 + before));
  witnesses.on_bytes(at(2000), 3);
  return !witnesses.gone(at(2000), kPause);
}

TEST(CcPaceWatchWitness, FlowSeenWithinTwoWindowsIsAWitness) {
  EXPECT_TRUE(is_witness(0));
  EXPECT_TRUE(is_witness(99));
  EXPECT_TRUE(is_witness(199));
  EXPECT_FALSE(is_witness(200));
}

TEST(CcPaceWatchWitness, FlowsBeforeAPauseOfTwoWindowsAreNoWitnesses) {
  for (const int64_t pause : {199, 200}) {
    Witnesses witnesses{kWindow, kMemory};
    witnesses.on_bytes(at(1000), 3);
    witnesses.on_bytes(at(1000 + pause), 4);
    witnesses.on_queue(at(1000 + pause));
    witnesses.on_bytes(at(3000), 3);
    EXPECT_EQ(witnesses.gone(at(3000), kPause), pause == 200);
  }
}

// Flow 3 met the queue, flows 1 and 2 did not.
struct AfterAQueue {
  AfterAQueue() {
    come(1000, 1, 40e9);
    come(1300, 2, 30e9);
    come(1600, 3, 40e9);
    witnesses.on_queue(at(1650));
  }
  void come(int64_t when, uint32_t flow, double rate) {
    witnesses.on_bytes(at(when), flow);
    witnesses.on_clear(at(when), rate);
  }
  double given(int64_t when, std::vector<uint32_t> flows) {
    for (const uint32_t flow : flows) witnesses.on_bytes(at(when), flow);
    return witnesses.given();
  }
  Witnesses witnesses{kWindow, kMemory};
};

TEST(CcPaceWatchWitness, GivenRateIsTheLeastOfTheFlowsPresent) {
  EXPECT_EQ(AfterAQueue().given(2000, {1}), 40e9);
  EXPECT_EQ(AfterAQueue().given(2000, {1, 2}), 30e9);
  EXPECT_EQ(AfterAQueue().given(2000, {1, 4}), 0) << "no rate of flow 4 is known";
  EXPECT_EQ(AfterAQueue().given(2000, {1, 3}), 40e9) << "flow 3 met the queue and does not count";
  EXPECT_EQ(AfterAQueue().given(2000, {3}), 0);
}

TEST(CcPaceWatchWitness, GivenRateMayBeThatOfTheFirstFlow) {
  Witnesses witnesses{kWindow, kMemory};
  for (const uint32_t flow : {1U, 2U, 3U}) {
    const int64_t when = 1000 + 300 * flow;
    witnesses.on_bytes(at(when), flow);
    witnesses.on_clear(at(when), flow == 1 ? 30e9 : 40e9);
  }
  witnesses.on_queue(at(1950));
  for (const uint32_t flow : {1U, 2U}) witnesses.on_bytes(at(3000), flow);
  EXPECT_EQ(witnesses.given(), 30e9);
}

TEST(CcPaceWatchWitness, FlowThatMeetsAQueueLosesItsGivenRate) {
  AfterAQueue after;
  after.witnesses.forget();
  EXPECT_EQ(after.given(2000, {3}), 0);
  EXPECT_EQ(after.given(3000, {1}), 40e9) << "the others keep their given rates";
}

TEST(CcPaceWatchWitness, GivenRatesAreForgottenAfterTwoPeriods) {
  const int64_t memory = kMemory.ns() / 1000;
  for (const int64_t periods : {1, 2}) {
    AfterAQueue after;
    for (int64_t period = 1; period <= periods; ++period) {
      for (int i = 0; i < 2; ++i) after.come(1000 + i + period * memory, 4, 10e9);
    }
    EXPECT_EQ(after.given(2000 + periods * memory, {1}), periods == 1 ? 40e9 : 0);
  }
}

TEST(CcPaceWatchWitness, WitnessesAreGoneWhenNoneSendsForAPause) {
  Witnesses witnesses{kWindow, kMemory};
  EXPECT_FALSE(witnesses.gone(at(9000), kPause)) << "no witnesses are known";
  witnesses.on_bytes(at(1000), 3);
  witnesses.on_queue(at(1050));
  witnesses.on_bytes(at(1060), 4);
  EXPECT_FALSE(witnesses.gone(at(1059), kPause));
  EXPECT_TRUE(witnesses.gone(at(1060), kPause));
  witnesses.on_bytes(at(1070), 3 + 64);  // counts as flow 3
  EXPECT_FALSE(witnesses.gone(at(1079), kPause));
  witnesses.forget();
  EXPECT_FALSE(witnesses.gone(at(9000), kPause));
}

// --- order of arrivals ---

TEST(CcPaceWatchOrder, PacketIsOvertakenByMoreThanTheSpread) {
  ArrivalOrder order;
  EXPECT_FALSE(order.overtaken(5000, Duration())) << "the first packet";
  EXPECT_FALSE(order.overtaken(5000, Duration())) << "of the same burst, sent at the same time";
  EXPECT_TRUE(order.overtaken(4999, Duration()));
  EXPECT_FALSE(order.overtaken(4000, us(1)));
  EXPECT_TRUE(order.overtaken(3999, us(1)));
  EXPECT_FALSE(order.overtaken(6000, Duration()));
  EXPECT_TRUE(order.overtaken(5999, Duration()));
}

TEST(CcPaceWatchOrder, SendTimesWrap) {
  ArrivalOrder order;
  EXPECT_FALSE(order.overtaken(0xFFFFFF00, Duration()));
  EXPECT_FALSE(order.overtaken(0x100, Duration()));
  EXPECT_TRUE(order.overtaken(0xFFFFFFFF, Duration()));
}

TEST(CcPaceWatchOrder, OrderIsResetAfterAPause) {
  constexpr uint32_t kLongest = 50'000'000;
  ArrivalOrder order;
  EXPECT_FALSE(order.overtaken(2 * kLongest, Duration()));
  EXPECT_TRUE(order.overtaken(kLongest + 1, Duration()));
  EXPECT_FALSE(order.overtaken(kLongest, Duration()))
      << "such an old time counts as a later one, after a pause";
  EXPECT_FALSE(order.overtaken(kLongest + 1, Duration()));
}

// --- bursts ---

TEST(CcPaceWatchBurst, BurstLastsUntilItsQueueIsEmpty) {
  constexpr double kByteInUs = 8e6;
  BurstUse use;
  use.on_bytes(at(1000), 10, kByteInUs);
  EXPECT_EQ(use.bytes(), 10U);
  use.on_bytes(at(1004), 5, kByteInUs);
  EXPECT_EQ(use.bytes(), 15U);
  use.on_bytes(at(1014), 1, kByteInUs);  // one byte was still queued
  EXPECT_EQ(use.bytes(), 16U);
  use.on_bytes(at(1003), 3, kByteInUs);  // reported late
  EXPECT_EQ(use.bytes(), 19U);
  use.on_bytes(at(1020), 7, kByteInUs);
  EXPECT_EQ(use.bytes(), 7U);
  use.forget();
  EXPECT_EQ(use.bytes(), 0U);
  use.on_bytes(at(2000), 8, kByteInUs);
  use.on_bytes(at(2008), 1, kByteInUs);
  EXPECT_EQ(use.bytes(), 1U) << "the queue is just empty, so a new burst begins";
}

// --- the rate of arrivals ---

class CcPaceWatchArrivals : public testing::Test {
 protected:
  static constexpr Bytes kPacket = 1000;

  CcPaceWatchArrivals() { meter_.begin(now_); }
  // Bytes arrive after `gap`. True when a measurement ends.
  bool arrive(Duration gap, Bytes bytes, Duration delay = us(1), bool overtaken = false) {
    now_ = now_ + gap;
    return meter_.on_bytes(now_, bytes, delay, overtaken);
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

TEST_F(CcPaceWatchArrivals, ArrivalsAreScatteredAboveOneOvertakenInSixteen) {
  arrive(us(50), 15 * kPacket);
  EXPECT_TRUE(arrive(us(50), kPacket, us(1), true));
  EXPECT_FALSE(meter_.scattered()) << "exactly one in 16";
  arrive(us(50), 6 * kPacket);
  EXPECT_TRUE(arrive(us(50), kPacket, us(1), true));
  EXPECT_TRUE(meter_.scattered());
}

TEST_F(CcPaceWatchArrivals, BeginResetsTheMeter) {
  EXPECT_TRUE(arrive(us(100), 100 * kPacket, us(5), true));
  arrive(us(10), 50 * kPacket, us(2), true);
  meter_.begin(now_);
  EXPECT_TRUE(arrive(us(100), 6 * kPacket, us(7)));
  EXPECT_DOUBLE_EQ(meter_.rate(), 6000 * 8 / 100e-6);
  EXPECT_EQ(meter_.delay(), us(7));
  EXPECT_FALSE(meter_.scattered());
}

// --- policers ---

class CcPaceWatchPolicer : public testing::Test {
 protected:
  static constexpr double kArriving = 8e9;

  CcPaceWatchPolicer() { watch_.begin(now_); }
  // A window of 100,000 bytes of which `lost` are lost.
  bool window(Bytes lost) {
    watch_.on_bytes(100'000 - lost);
    watch_.on_loss(lost);
    now_ = now_ + kWindow;
    return watch_.look(now_, kArriving);
  }

  PolicerWatch watch_{kWindow};
  Instant now_ = at(1000);
};

TEST_F(CcPaceWatchPolicer, ThreeLossyWindowsInARowLookLikeAPolicer) {
  EXPECT_FALSE(window(10'000));
  EXPECT_FALSE(window(10'000));
  EXPECT_FALSE(window(5'000)) << "a loss of 5% may be the cable's";
  EXPECT_FALSE(window(10'000));
  EXPECT_FALSE(window(5'001));
  EXPECT_TRUE(window(5'001));
  EXPECT_FALSE(watch_.quiet());
}

TEST_F(CcPaceWatchPolicer, WindowsAreNotCutShort) {
  watch_.on_loss(1);
  EXPECT_FALSE(watch_.quiet());
  EXPECT_FALSE(watch_.look(now_ + kWindow - Duration::from_ns(1), kArriving));
  watch_.on_bytes(1'000'000);
  watch_.look(now_ + kWindow, kArriving);
  EXPECT_TRUE(watch_.quiet()) << "all bytes were one window, with hardly any loss";
}

TEST_F(CcPaceWatchPolicer, NoCutWhileLessArrivesThanUsual) {
  for (int i = 0; i < 10; ++i) window(20'000);
  watch_.on_bytes(80'000);
  watch_.on_loss(20'000);
  PolicerWatch less = watch_;
  EXPECT_FALSE(less.look(now_ + kWindow, 0.75 * 6.4e9 * 0.999));
  EXPECT_TRUE(watch_.look(now_ + kWindow, 0.75 * 6.4e9 * 1.001));
}

TEST_F(CcPaceWatchPolicer, PolicedRateIsALittleLessThanWhatArrives) {
  for (int i = 0; i < 3; ++i) window(20'000);
  EXPECT_DOUBLE_EQ(watch_.judge(now_, 1e8, 1e9, 2e9), 0.98 * 0.8e9);
  EXPECT_DOUBLE_EQ(watch_.judge(now_, 9e8, 1e9, 2e9), 0.98 * 9e8)
      << "the higher arrival rate counts";
  EXPECT_DOUBLE_EQ(watch_.judge(now_, 9e8, 1e9, 5e8), 0.98 * 5e8) << "the budget is never raised";
  EXPECT_FALSE(window(1'000)) << "1% of loss is tolerated";
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(window(1'001));
  EXPECT_TRUE(window(1'001)) << "once a policer is known, more than 1% is suspicious";
}

TEST_F(CcPaceWatchPolicer, BeginResetsTheWatch) {
  for (int i = 0; i < 2; ++i) window(20'000);
  watch_.begin(now_);
  EXPECT_TRUE(watch_.quiet());
  EXPECT_FALSE(window(20'000)) << "this is the first of three lossy windows";
}

// Cuts belong to the same attempt if each comes within two timeouts of the one before.
TEST_F(CcPaceWatchPolicer, RareCutsBelongToOneAttempt) {
  for (int i = 0; i < 3; ++i) window(20'000);
  EXPECT_LT(watch_.judge(now_, 0, 1e9, 2e9), 1e9);
  for (int i = 0; i < 15; ++i) window(20'000);
  EXPECT_LT(watch_.judge(now_, 0, 1e9, 1e9), 1e9);
  for (int i = 0; i < 15; ++i) window(20'000);
  EXPECT_EQ(watch_.judge(now_, 0, 1e9, 1e9), 2e9);
}

TEST_F(CcPaceWatchPolicer, CutsThatHelpedAreKept) {
  for (int i = 0; i < 3; ++i) window(40'000);
  watch_.judge(now_, 0, 1e9, 2e9);
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (int i = 0; i < 10; ++i) window(15'000);
    EXPECT_LT(watch_.judge(now_, 0, 1e9, 1e9), 1e9);
  }
}

TEST_F(CcPaceWatchPolicer, CutsThatDoNotHelpAreUndone) {
  for (int i = 0; i < 3; ++i) window(20'000);
  const double before = 2e9;
  double budget = watch_.judge(now_, 0, 1e9, before);
  for (int i = 0; i < 15; ++i) {
    window(20'000);
    budget = watch_.judge(now_, 0, budget, budget);
    ASSERT_LT(budget, before) << i;
  }
  window(20'000);
  EXPECT_EQ(watch_.judge(now_, 0, budget, budget), before)
      << "the cuts are undone after two timeouts";
  for (int i = 0; i < 10; ++i)
    EXPECT_FALSE(window(20'000)) << "these losses are known as the cable's";
  for (int i = 0; i < 2; ++i) window(50'000);
  EXPECT_TRUE(window(50'000)) << "more than twice the known losses are suspicious";
}

// --- neighbors that keep a queue ---

class CcPaceWatchNeighbor : public testing::Test {
 protected:
  static constexpr Duration kUsual = us(10);
  static constexpr Duration kTrip = us(100);
  static constexpr double kRate = 1e9;

  bool look(Duration later, Duration delay, double rate) {
    now_ = now_ + later;
    return neighbor_.look(now_, delay, kUsual, kTrip, rate);
  }
  // A neighbor that keeps 40 us is recognized after 12 round trips of 140 us.
  void recognize() {
    EXPECT_FALSE(look(us(0), us(40), kRate));
    EXPECT_FALSE(look(us(12 * 140 - 1), us(40), kRate / 2));
    EXPECT_TRUE(look(us(1), us(40), kRate / 2));
  }

  GreedyNeighbor neighbor_;
  Instant now_ = at(1000);
};

TEST_F(CcPaceWatchNeighbor, NeighborIsRecognizedWhenItsQueueStays) {
  recognize();
  EXPECT_EQ(neighbor_.kept(), us(40));
  EXPECT_FALSE(look(us(1), us(40), kRate / 2)) << "the neighbor is recognized once";
}

TEST_F(CcPaceWatchNeighbor, ThreeTimesTheUsualDelayIsNotANeighbors) {
  look(us(0), us(30), kRate);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(look(us(140), us(30), kRate / 2));
  EXPECT_FALSE(neighbor_.stays());
}

TEST_F(CcPaceWatchNeighbor, NeighborIsRecognizedOnlyAfterHalvingTheRate) {
  look(us(0), us(40), kRate);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(look(us(140), us(40), kRate / 2 + 1));
  EXPECT_TRUE(look(us(1), us(40), kRate / 2));
}

TEST_F(CcPaceWatchNeighbor, DelayIsStandingAfterFourRoundTrips) {
  look(us(0), us(40), kRate);
  look(us(4 * 140 - 1), us(40), kRate);
  EXPECT_FALSE(neighbor_.stays());
  look(us(1), us(40), kRate);
  EXPECT_TRUE(neighbor_.stays());
}

TEST_F(CcPaceWatchNeighbor, QueueThatFallsByAQuarterRestartsRecognition) {
  look(us(0), us(100), kRate);
  look(us(1000), us(75), kRate / 2);
  EXPECT_FALSE(look(us(100), us(74), kRate / 4));
  EXPECT_FALSE(neighbor_.stays());
  EXPECT_FALSE(look(us(12 * 174 - 1), us(74), kRate / 2));
  EXPECT_TRUE(look(us(1), us(74), kRate / 2)) << "the rate has halved since before the fall";
}

TEST_F(CcPaceWatchNeighbor, NeighborIsForgottenWhenItsDelayDoubles) {
  recognize();
  EXPECT_FALSE(look(us(4 * 140), us(81), kRate));
  EXPECT_EQ(neighbor_.kept(), us(40)) << "the neighbor is not forgotten yet";
  EXPECT_FALSE(look(us(1), us(81), kRate));
  EXPECT_EQ(neighbor_.kept(), Duration());
}

TEST_F(CcPaceWatchNeighbor, NeighborIsKnownBetweenHalfAndTwiceItsDelay) {
  for (const int64_t delay : {20, 80}) {
    neighbor_.forget();
    recognize();
    for (int i = 0; i < 20; ++i) look(us(500), us(delay), kRate);
    EXPECT_EQ(neighbor_.kept(), us(40)) << delay;
  }
  neighbor_.forget();
  recognize();
  for (int i = 0; i < 20; ++i) look(us(500), us(19), kRate);
  EXPECT_EQ(neighbor_.kept(), Duration());
}

// All hosts forget neighbors every four seconds of the clock, but not within a second of
// recognition.
TEST_F(CcPaceWatchNeighbor, NeighborIsForgottenAtCommonMomentsOfTheClock) {
  for (const int64_t start_ms : {1000, 2900, 3100}) {
    neighbor_.forget();
    now_ = at(start_ms * 1000);
    recognize();
    const Instant again = at(start_ms > 3000 ? 8'000'000 : 4'000'000);
    const Duration step = us(400);
    while (now_ + step < again) {
      look(step, us(40), kRate);
      ASSERT_EQ(neighbor_.kept(), us(40));
    }
    look(again - now_, us(40), kRate);
    EXPECT_EQ(neighbor_.kept(), Duration()) << start_ms;
  }
}

}  // namespace
}  // namespace pacecar::watches_test
