// The sender's half of `pace`: grants, what it tells the receiver, and when packets leave.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "cc/grant_word.h"
#include "cc/pace/phase.h"
#include "cc/pace/sender.h"
#include "transport/base/pacer.h"
#include "transport/base/prng.h"

namespace pacecar {
namespace {

constexpr Duration kRoundTrip = Duration::from_us(8);
constexpr Duration kValidity = Duration::from_us(50);
constexpr Bytes kMtu = 4096;
constexpr FlowEnvironment kFabric{.line_rate = Rate::from_gbps(400),
                                  .mtu = kMtu,
                                  .overhead = 64,
                                  .burst_bytes = kMtu,
                                  .base_rtt = kRoundTrip};

class CcPaceSender : public ::testing::Test {
 protected:
  void grant(uint64_t gbps, uint16_t epoch, Duration phase = {}) {
    pace_.on_grant(now_, {.rate = Rate::from_gbps(gbps),
                          .phase = phase,
                          .aligned = true,
                          .validity = kValidity,
                          .epoch = epoch});
  }
  void cts(uint64_t gbps, uint16_t epoch) {
    pace_.on_grant(now_, {.rate = Rate::from_gbps(gbps), .validity = kValidity, .epoch = epoch});
  }
  std::optional<Demand> want(Bytes backlog) {
    stats_.backlog += backlog;
    return pace_.demand(now_, stats_);
  }
  // Acknowledgements of some round trips, 20 each, without delay.
  void hear(int round_trips) {
    for (int i = 0; i < 20 * round_trips; ++i) {
      now_ = now_ + kRoundTrip / 20;
      acknowledge(kMtu);
    }
  }
  std::optional<Demand> acknowledge(Bytes bytes) {
    stats_.in_flight = 20 * kMtu;
    stats_.acked += bytes;
    stats_.backlog -= std::min(bytes, stats_.backlog);
    stats_.sent = stats_.acked + stats_.in_flight;
    pace_.on_ack({.now = now_,
                  .rtt = kRoundTrip,
                  .acked = bytes,
                  .in_flight = stats_.in_flight,
                  .sent = stats_.sent});
    return pace_.demand(now_, stats_);
  }
  double gbps() { return static_cast<double>(pace_.decide(now_).rate.bps()) / 1e9; }
  void wait(Duration span) { now_ = now_ + span; }

  LinkShare link_{kFabric, 1, PaceConstants{}.regrant};
  PaceController pace_{kFabric, PaceConstants{}, link_, 0};
  FlowStats stats_;
  Instant now_ = Instant::from_ns(1'000'000'000);
};

// --- grants ---

TEST_F(CcPaceSender, TheNewestEpochWins) {
  want(1 << 30);
  grant(50, 65'534);
  EXPECT_EQ(gbps(), 50);
  EXPECT_EQ(pace_.decide(now_).limited_by, LimitedBy::kGrant);
  grant(70, 65'533);
  EXPECT_EQ(gbps(), 50) << "late";
  grant(70, 65'534);
  EXPECT_EQ(gbps(), 50) << "repeated by the network";
  grant(60, 0);
  EXPECT_EQ(gbps(), 60) << "across the wrap";
  grant(50, 65'535);
  EXPECT_EQ(gbps(), 60);
}

TEST_F(CcPaceSender, ACtsOfLongAgoCountsNot) {
  want(1 << 30);
  grant(50, 1000);
  for (const uint16_t epoch : {999, 1000}) cts(70, epoch);
  EXPECT_EQ(gbps(), 50);
  cts(70, 20'000);
  EXPECT_EQ(gbps(), 50) << "too far ahead: it is from before the wrap";
  cts(60, 1001);
  EXPECT_EQ(gbps(), 60) << "overtook the word";
  grant(55, 1001);
  EXPECT_EQ(gbps(), 55) << "the word itself";
}

TEST_F(CcPaceSender, AnyGrantIsMadeHarmless) {
  want(1 << 30);
  uint16_t epoch = 0;
  for (const uint64_t bps : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    for (const Duration span :
         {Duration::from_ns(-1), Duration(), Duration::max(), Duration::max() * -1}) {
      pace_.on_grant(now_, {.rate = Rate::from_bps(bps),
                            .phase = span,
                            .aligned = true,
                            .validity = span,
                            .epoch = ++epoch});
      const Decision d = pace_.decide(now_);
      EXPECT_GE(d.rate, Rate::from_bps(100'000));
      EXPECT_LE(d.rate, kFabric.line_rate);
      EXPECT_GE(d.window, kMtu);
      EXPECT_GE(d.first_send, now_);
      wait(Duration::from_us(1));
    }
  }
}

TEST_F(CcPaceSender, ALapsedGrantHalvesPerRoundTripAndNeverStops) {
  want(1 << 30);
  grant(100, 1);
  wait(kValidity - Duration::from_ns(1));
  EXPECT_EQ(gbps(), 100);
  wait(Duration::from_ns(1));
  EXPECT_EQ(gbps(), 50);
  wait(kRoundTrip);
  EXPECT_EQ(gbps(), 25);
  wait(kRoundTrip * 2);
  EXPECT_EQ(gbps(), 6.25);
  wait(Duration::from_s(1));
  EXPECT_EQ(gbps(), 400.0 / 256);
  grant(80, 2);
  EXPECT_EQ(gbps(), 80);
}

TEST_F(CcPaceSender, ALapsedGrantBelowTheLeastStaysWhatItIs) {
  want(1 << 30);
  grant(1, 1);
  wait(Duration::from_s(1));
  EXPECT_EQ(gbps(), 1);
}

TEST_F(CcPaceSender, AGrantDoesNotLapseWhileThereIsNothingToSend) {
  cts(100, 1);
  wait(Duration::from_s(10));
  want(1 << 30);
  EXPECT_EQ(gbps(), 100);
  wait(kValidity * 2);
  EXPECT_LT(gbps(), 100);
}

TEST_F(CcPaceSender, AReceiverThatAcknowledgesButIsSilentIsOnlyLate) {
  want(Bytes{1} << 40);
  hear(20);
  grant(100, 1);
  double least = 100;
  for (int i = 0; i < 60; ++i) {
    hear(1);
    least = std::min(least, gbps());
  }
  EXPECT_LT(least, 100) << "it slowed down at first";
  EXPECT_EQ(gbps(), 400) << "the network alone counts";
  grant(30, 2);
  EXPECT_EQ(gbps(), 30) << "and then the receiver again";
}

TEST_F(CcPaceSender, ABudgetIsNamedAsTheReason) {
  FlowEnvironment environment = kFabric;
  environment.line_rate = environment.rate_max = Rate::from_gbps(10);
  LinkShare link(environment, 1, PaceConstants{}.regrant);
  PaceController pace(environment, PaceConstants{}, link, 0);
  pace.demand(now_, {.backlog = 1 << 30});
  pace.on_grant(now_, {.rate = Rate::from_gbps(100), .validity = kValidity, .epoch = 1});
  for (int i = 1; i <= 2000; ++i) {  // until the core is known to be clear
    now_ = now_ + kRoundTrip / 20;
    pace.on_ack({.now = now_,
                 .rtt = kRoundTrip,
                 .acked = kMtu,
                 .in_flight = 20 * kMtu,
                 .sent = (20 + static_cast<Bytes>(i)) * kMtu});
  }
  pace.on_grant(now_, {.rate = Rate::from_gbps(100), .validity = kValidity, .epoch = 2});
  const Decision d = pace.decide(now_);
  EXPECT_EQ(d.rate, Rate::from_gbps(10));
  EXPECT_EQ(d.limited_by, LimitedBy::kBudget);
  const Explanation why = pace.explain(now_);
  EXPECT_EQ(why.rate_max, Rate::from_gbps(10));
  EXPECT_EQ(why.grant, Rate::from_gbps(100));
  EXPECT_EQ(why.limited_by, LimitedBy::kBudget);
}

TEST_F(CcPaceSender, ExplainsItsRate) {
  want(1 << 30);
  grant(50, 7, Duration::from_ns(640));
  wait(Duration::from_us(3));
  const Explanation why = pace_.explain(now_);
  EXPECT_EQ(why.limited_by, LimitedBy::kGrant);
  EXPECT_EQ(why.rate, Rate::from_gbps(50));
  EXPECT_EQ(why.grant_age, Duration::from_us(3));
  EXPECT_EQ(why.phase, Duration::from_ns(640));
  EXPECT_EQ(why.epoch, 7);
  acknowledge(1 << 30);
  EXPECT_EQ(pace_.explain(now_).limited_by, LimitedBy::kApplication);
}

TEST_F(CcPaceSender, TheWindowHoldsMoreThanARoundTripAtItsRate) {
  want(1 << 30);
  grant(100, 1);
  const Bytes round_trip = Rate::from_gbps(100).bytes_in(kRoundTrip);
  EXPECT_GE(pace_.decide(now_).window, round_trip * 11 / 8);
  EXPECT_LE(pace_.decide(now_).window, round_trip * 2);
}

// --- demand ---

TEST_F(CcPaceSender, ABacklogIsAnnouncedOnce) {
  cts(50, 1);
  const auto first = want(10'000'000);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->wanted, 10'000'000U);
  EXPECT_GT(first->usable, Rate::from_gbps(200)) << "what the receiver does not limit";
  const uint64_t word = wire::encode_demand(*first);
  for (int i = 0; i < 10; ++i) {
    wait(Duration::from_ns(100));
    EXPECT_EQ(wire::encode_demand(*acknowledge(kMtu)), word) << "nothing new";
  }
}

// More than a word can say: what it says is enough for long.
TEST_F(CcPaceSender, AHugeBacklogIsAnnouncedAsSeldom) {
  grant(100, 1);
  const uint16_t first = want(Bytes{1} << 40)->epoch;
  uint16_t last = first;
  for (int i = 0; i < 1000; ++i) {
    wait(Duration::from_ns(30));
    last = acknowledge(kMtu)->epoch;
  }
  EXPECT_LE(last - first, 5) << "what it can use may change";
}

TEST_F(CcPaceSender, WhatWasSaidIsRepeatedBeforeItIsForgotten) {
  want(Bytes{1} << 29);
  grant(50, 1);
  uint16_t epoch = want(0)->epoch;
  int repeats = 0;
  for (Duration t; t < Duration::from_ms(1); t = t + Duration::from_us(1)) {
    wait(Duration::from_us(1));
    grant(50, static_cast<uint16_t>(2 + repeats));
    const auto demand = want(0);
    if (demand->epoch == epoch) continue;
    EXPECT_EQ(demand->epoch, static_cast<uint16_t>(epoch + 1)) << "an epoch of its own";
    epoch = demand->epoch;
    ++repeats;
  }
  EXPECT_GE(repeats, 18) << "the receiver forgets after two periods of validity";
  EXPECT_LE(repeats, 100);
}

TEST_F(CcPaceSender, ASmallMessageIsNotAnnounced) {
  grant(100, 1);
  EXPECT_FALSE(want(1000).has_value()) << "gone before an answer could come";
  EXPECT_FALSE(acknowledge(1000).has_value());
  wait(Duration::from_s(1));
  EXPECT_FALSE(want(0).has_value()) << "nobody was told, so there is no farewell";
  const uint16_t epoch = want(1'000'000)->epoch;
  acknowledge(1'000'000);
  EXPECT_EQ(want(1000)->epoch, epoch) << "nor after a long one";
  EXPECT_EQ(acknowledge(1000)->epoch, epoch);
}

TEST_F(CcPaceSender, AFarewellIsSaidOnceAndLate) {
  grant(100, 1);
  const uint16_t epoch = want(1'000'000)->epoch;
  const auto done = acknowledge(1'000'000);
  EXPECT_EQ(done->epoch, epoch) << "the receiver sees that all is there";
  wait(Duration::from_ms(2));
  const auto farewell = want(0);
  ASSERT_TRUE(farewell.has_value());
  EXPECT_EQ(farewell->usable, Rate());
  EXPECT_EQ(farewell->wanted, 1'000'000U);
  EXPECT_NE(farewell->epoch, epoch);
  wait(Duration::from_s(1));
  EXPECT_EQ(want(0)->epoch, farewell->epoch);
}

// Also a flow that never ends is told of before it looks done, and its total wraps.
TEST_F(CcPaceSender, WhatIsWantedRunsAheadOfWhatHasArrived) {
  grant(100, 1);
  want(Bytes{3} << 30);
  Bytes told = 0;  // not modulo anything
  uint16_t epoch = 0;
  for (int i = 0; i < 1000; ++i) {
    if (stats_.backlog < Bytes{2} << 30) want(Bytes{1} << 30);
    grant(100, static_cast<uint16_t>(i + 2));
    wait(Duration::from_us(10));
    const auto demand = acknowledge(16 << 20);
    const uint64_t word = wire::encode_demand(*demand);
    const Demand heard = wire::decode_demand(word);
    const auto ahead = static_cast<int32_t>(static_cast<uint32_t>(heard.wanted) -
                                            static_cast<uint32_t>(stats_.acked));
    ASSERT_GT(ahead, 0) << "at " << stats_.acked;
    const Bytes total = stats_.acked + static_cast<Bytes>(ahead);
    ASSERT_LE(total, stats_.acked + stats_.backlog + kWantedUnit);
    ASSERT_GE(total + kWantedUnit, told) << "a total only grows";
    told = total;
    epoch = demand->epoch;
  }
  EXPECT_GT(told, Bytes{1} << 33);
  EXPECT_GT(epoch, 5);
}

TEST_F(CcPaceSender, SaysHowManyFlowsItHasServedOneAtATime) {
  const auto first = want(1'000'000);
  acknowledge(1'000'000);
  wait(Duration::from_us(10));
  const auto second = want(1'000'000);
  EXPECT_GE(first->turn, 1);
  EXPECT_EQ(second->turn, first->turn % Demand::kTurns + 1);
}

// --- alignment ---

// Where a packet lies in the gap, counted from the grid.
double offset_ns(Instant send, Instant granted, Duration phase, double gap) {
  const double grid = static_cast<double>((granted - kRoundTrip + phase).ns());
  const double offset = modulo(static_cast<double>(send.ns()) - grid, gap);
  return std::min(offset, gap - offset);
}

TEST_F(CcPaceSender, TheFirstPacketLeavesInTheGrid) {
  const double gap = pace_gap_ns(Rate::from_gbps(10), kMtu, kMtu, 64);
  for (uint16_t i = 1; i <= 50; ++i) {
    LinkShare link(kFabric, 1, PaceConstants{}.regrant);
    PaceController pace(kFabric, PaceConstants{}, link, 0);
    pace.demand(now_, {.backlog = 1 << 30});
    pace.decide(now_);
    wait(Duration::from_ns(1));
    const Duration phase = Duration::from_ns(i * 64);
    pace.on_grant(now_, {.rate = Rate::from_gbps(10),
                         .phase = phase,
                         .aligned = true,
                         .validity = kValidity,
                         .epoch = i});
    const SendGrid grid = pace.decide(now_).grid;
    EXPECT_NEAR(static_cast<double>(grid.period.ns()), gap, 1);
    EXPECT_GE(grid.point, now_);
    EXPECT_LE(static_cast<double>((grid.point - now_).ns()), gap + 2);
    EXPECT_LE(offset_ns(grid.point, now_, phase, gap), 2);
    EXPECT_EQ(pace.decide(now_).grid, SendGrid()) << "once per word";
    wait(Duration::from_us(1));
  }
}

TEST_F(CcPaceSender, ARepeatedPhaseMovesNothing) {
  const double gap = pace_gap_ns(Rate::from_gbps(10), kMtu, kMtu, 64);
  want(1 << 30);
  const Instant start = now_;
  grant(10, 1, Duration());
  const Instant first = pace_.decide(now_).first_send;
  for (uint16_t i = 2; i < 100; ++i) {
    wait(Duration::from_ns(7'777));
    // As its receiver says it again: the same grid, counted from now.
    grant(10, i,
          Duration::from_ns(std::llround(modulo(-static_cast<double>((now_ - start).ns()), gap))));
    const SendGrid grid = pace_.decide(now_).grid;
    EXPECT_LT(grid.point - now_, Duration::from_ns(static_cast<int64_t>(gap) + 3));
    const double off = modulo(static_cast<double>((grid.point - first).ns()), gap);
    EXPECT_LE(std::min(off, gap - off), 3);
  }
}

// The rate changes a little with every word, and with it the grid.
TEST_F(CcPaceSender, RealignmentTakesNothingFromTheRate) {
  want(Bytes{1} << 40);
  Prng random(7);
  const Instant start = now_;
  double fair = 0;  // bytes
  Bytes sent = 0;
  uint16_t epoch = 0;
  Rate rate = Rate::from_gbps(10);
  Pacer pacer(kMtu);
  pacer.set_rate(rate, now_);
  pace_.decide(now_);
  Instant word = now_ + Duration::from_us(1);
  while (now_ - start < Duration::from_ms(20)) {
    if (word <= pacer.next_send()) {
      fair += static_cast<double>(rate.bytes_in(word - now_));
      now_ = word;
      rate = Rate::from_bps(10'000'000'000 + random.below(100'000'000));
      pace_.on_grant(now_, {.rate = rate,
                            .phase = Duration::from_ns(static_cast<int64_t>(random.below(3328))),
                            .aligned = true,
                            .validity = kValidity,
                            .epoch = ++epoch});
      const Decision d = pace_.decide(now_);
      ASSERT_GT(d.grid.period, Duration());
      pacer.set_rate(d.rate, now_);
      pacer.move_to(d.grid, now_);
      word = now_ + Duration::from_ns(12'500);
    } else {
      const Instant next = std::max(pacer.next_send(), now_);
      fair += static_cast<double>(rate.bytes_in(next - now_));
      now_ = next;
      sent += kMtu + 64;
      pacer.on_sent(kMtu + 64, now_);
    }
  }
  EXPECT_NEAR(static_cast<double>(sent) / fair, 1.0, 0.01);
}

// A flow that waited for its turn sends a packet every 21 us; it need not wait for the next of them
// when its turn has come.
TEST_F(CcPaceSender, ARaiseCountsFromTheNextPacketOn) {
  want(1 << 30);
  Pacer pacer(kMtu);
  const auto apply = [&] {
    const Decision d = pace_.decide(now_);
    pacer.set_rate(d.rate, now_);
    pacer.move_to(d.grid, now_);
  };
  for (uint16_t i = 1; i < 20; i += 2) {
    pace_.on_grant(now_, {.rate = Rate::from_bps(400'000'000'000 / 256),
                          .phase = {},
                          .aligned = true,
                          .validity = kValidity,
                          .epoch = i});
    apply();
    wait(std::max(pacer.next_send() - now_, Duration()));
    pacer.on_sent(kMtu + 64, now_);
    wait(Duration::from_ns(1'234));
    grant(200, i + 1, Duration::from_ns(64));
    apply();
    EXPECT_LE((pacer.next_send() - now_).ns(), 2 * 167) << "at most two gaps";
    wait(Duration::from_us(3));
  }
}

TEST_F(CcPaceSender, WhatTheLinkLimitsKeepsNoGrid) {
  want(1 << 30);
  hear(30);
  pace_.decide(now_);
  grant(800, 1, Duration::from_ns(64));
  EXPECT_EQ(pace_.decide(now_).grid, SendGrid());
}

// What was earned while idle is no licence to burst.
TEST_F(CcPaceSender, AFlowBeginsWithItsFirstPacketNow) {
  cts(100, 1);
  want(1 << 30);
  const Decision d = pace_.decide(now_);
  EXPECT_TRUE(d.aligned);
  EXPECT_EQ(d.first_send, now_);
}

// Others use the link: a little now, and the rest when the receiver has answered.
TEST_F(CcPaceSender, BeginsGentlyOnABusyLink) {
  Grant busy{.rate = Rate::from_gbps(100)};
  busy.busy = true;
  busy.validity = kValidity;
  busy.epoch = 1;
  pace_.on_grant(now_, busy);
  wait(Duration::from_ms(1));
  want(1 << 30);
  const Decision first = pace_.decide(now_);
  EXPECT_EQ(first.rate, Rate::from_gbps(100));
  EXPECT_NEAR(static_cast<double>(first.credit),
              static_cast<double>(Rate::from_gbps(100).bytes_in(kRoundTrip / 4)), kMtu);
  wait(kRoundTrip);
  grant(70, 2);
  EXPECT_EQ(pace_.decide(now_).credit, ~Bytes{0});
  EXPECT_EQ(gbps(), 70);
}

TEST_F(CcPaceSender, BeginsOnABusyLinkAlsoWithoutAnAnswer) {
  Grant busy{.rate = Rate::from_gbps(100)};
  busy.busy = true;
  busy.validity = kValidity;
  busy.epoch = 1;
  pace_.on_grant(now_, busy);
  want(1 << 30);
  pace_.decide(now_);
  wait(kRoundTrip * 4);
  const Decision later = pace_.decide(now_);
  EXPECT_EQ(later.credit, ~Bytes{0});
  EXPECT_LT(later.rate, Rate::from_gbps(50));
  EXPECT_GE(later.rate, Rate::from_bps(1'000'000));
}

}  // namespace
}  // namespace pacecar
