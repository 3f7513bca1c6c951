// The sender's half of `pace`: grants, demands, and when packets leave.
#include "cc/pace/sender.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "cc/grant_word.h"
#include "cc/pace/phase.h"
#include "transport/base/pacer.h"
#include "transport/base/prng.h"

namespace pacecar::sender_test {
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
  // Acknowledgements without delay for some round trips, 20 in each.
  void acknowledge_round_trips(int round_trips) {
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
    pace_.on_ack(
        now_,
        {.rtt = kRoundTrip, .acked = bytes, .in_flight = stats_.in_flight, .sent = stats_.sent});
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

TEST_F(CcPaceSender, NewestEpochCounts) {
  want(1 << 30);
  grant(50, 65'534);
  EXPECT_EQ(gbps(), 50);
  EXPECT_EQ(pace_.decide(now_).limited_by, LimitedBy::kGrant);
  grant(70, 65'533);
  EXPECT_EQ(gbps(), 50) << "the epoch is older";
  grant(70, 65'534);
  EXPECT_EQ(gbps(), 50) << "the same epoch again does not count";
  grant(60, 0);
  EXPECT_EQ(gbps(), 60) << "the epoch is newer across the wrap";
  grant(50, 65'535);
  EXPECT_EQ(gbps(), 60);
}

TEST_F(CcPaceSender, CtsWithAnOldEpochIsIgnored) {
  want(1 << 30);
  grant(50, 1000);
  for (const uint16_t epoch : {999, 1000}) cts(70, epoch);
  EXPECT_EQ(gbps(), 50);
  cts(70, 20'000);
  EXPECT_EQ(gbps(), 50) << "an epoch so far ahead is from before the wrap";
  cts(60, 1001);
  EXPECT_EQ(gbps(), 60) << "the CTS overtook the grant word of the same epoch";
  grant(55, 1001);
  EXPECT_EQ(gbps(), 55) << "the grant word replaces the CTS of the same epoch";
}

TEST_F(CcPaceSender, InvalidGrantsAreBounded) {
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
      const FlowLimits d = pace_.decide(now_);
      EXPECT_GE(d.rate, Rate::from_bps(100'000));
      EXPECT_LE(d.rate, kFabric.line_rate);
      EXPECT_GE(d.window, kMtu);
      EXPECT_GE(d.first_send, now_);
      wait(Duration::from_us(1));
    }
  }
}

TEST_F(CcPaceSender, LapsedGrantHalvesPerRoundTripDownToTheLeastRate) {
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

TEST_F(CcPaceSender, LapsedGrantBelowTheLeastRateStays) {
  want(1 << 30);
  grant(1, 1);
  wait(Duration::from_s(1));
  EXPECT_EQ(gbps(), 1);
}

TEST_F(CcPaceSender, GrantDoesNotLapseWhileTheFlowIsIdle) {
  cts(100, 1);
  wait(Duration::from_s(10));
  want(1 << 30);
  EXPECT_EQ(gbps(), 100);
  wait(kValidity * 2);
  EXPECT_LT(gbps(), 100);
}

TEST_F(CcPaceSender, ReceiverThatOnlyAcknowledgesNoLongerLimitsTheFlow) {
  want(Bytes{1} << 40);
  acknowledge_round_trips(20);
  grant(100, 1);
  double least = 100;
  for (int i = 0; i < 60; ++i) {
    acknowledge_round_trips(1);
    least = std::min(least, gbps());
  }
  EXPECT_LT(least, 100) << "the rate fell at first";
  EXPECT_EQ(gbps(), 400) << "only the core limit counts";
  grant(30, 2);
  EXPECT_EQ(gbps(), 30) << "a new grant counts again";
}

TEST_F(CcPaceSender, RateMaxIsReportedAsTheLimit) {
  FlowEnvironment environment = kFabric;
  environment.line_rate = environment.rate_max = Rate::from_gbps(10);
  LinkShare link(environment, 1, PaceConstants{}.regrant);
  PaceController pace(environment, PaceConstants{}, link, 0);
  pace.demand(now_, {.backlog = 1 << 30});
  pace.on_grant(now_, {.rate = Rate::from_gbps(100), .validity = kValidity, .epoch = 1});
  for (int i = 1; i <= 2000; ++i) {  // until the core is known to be clear
    now_ = now_ + kRoundTrip / 20;
    pace.on_ack(now_, {.rtt = kRoundTrip,
                       .acked = kMtu,
                       .in_flight = 20 * kMtu,
                       .sent = (20 + static_cast<Bytes>(i)) * kMtu});
  }
  pace.on_grant(now_, {.rate = Rate::from_gbps(100), .validity = kValidity, .epoch = 2});
  const FlowLimits d = pace.decide(now_);
  EXPECT_EQ(d.rate, Rate::from_gbps(10));
  EXPECT_EQ(d.limited_by, LimitedBy::kBudget);
  const Explanation why = pace.explain(now_);
  EXPECT_EQ(why.rate_max, Rate::from_gbps(10));
  EXPECT_EQ(why.grant, Rate::from_gbps(100));
  EXPECT_EQ(why.limited_by, LimitedBy::kBudget);
}

TEST_F(CcPaceSender, ExplanationReportsTheGrant) {
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

TEST_F(CcPaceSender, WindowHoldsMoreThanARoundTripOfTheRate) {
  want(1 << 30);
  grant(100, 1);
  const Bytes round_trip = Rate::from_gbps(100).bytes_in(kRoundTrip);
  EXPECT_GE(pace_.decide(now_).window, round_trip * 11 / 8);
  EXPECT_LE(pace_.decide(now_).window, round_trip * 2);
}

// --- demand ---

TEST_F(CcPaceSender, BacklogIsAnnouncedOnce) {
  cts(50, 1);
  const auto first = want(10'000'000);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->wanted, 10'000'000U);
  EXPECT_GT(first->usable, Rate::from_gbps(200)) << "the usable rate does not depend on the grant";
  const uint64_t word = wire::encode_demand(*first);
  for (int i = 0; i < 10; ++i) {
    wait(Duration::from_ns(100));
    EXPECT_EQ(wire::encode_demand(*acknowledge(kMtu)), word) << "the demand stays the same";
  }
}

// The backlog exceeds the most that a demand announces, which suffices for a long time.
TEST_F(CcPaceSender, HugeBacklogIsAnnouncedRarely) {
  grant(100, 1);
  const uint16_t first = want(Bytes{1} << 40)->epoch;
  uint16_t last = first;
  for (int i = 0; i < 1000; ++i) {
    wait(Duration::from_ns(30));
    last = acknowledge(kMtu)->epoch;
  }
  EXPECT_LE(last - first, 5) << "the usable rate may change a few times";
}

TEST_F(CcPaceSender, DemandIsRepeatedBeforeTheReceiverForgetsIt) {
  want(Bytes{1} << 29);
  grant(50, 1);
  uint16_t epoch = want(0)->epoch;
  int repeats = 0;
  for (Duration t; t < Duration::from_ms(1); t = t + Duration::from_us(1)) {
    wait(Duration::from_us(1));
    grant(50, static_cast<uint16_t>(2 + repeats));
    const auto demand = want(0);
    if (demand->epoch == epoch) continue;
    EXPECT_EQ(demand->epoch, static_cast<uint16_t>(epoch + 1)) << "each repeat has a new epoch";
    epoch = demand->epoch;
    ++repeats;
  }
  EXPECT_GE(repeats, 18) << "the receiver forgets after two periods of validity";
  EXPECT_LE(repeats, 100);
}

TEST_F(CcPaceSender, SmallMessageIsNotAnnounced) {
  grant(100, 1);
  EXPECT_FALSE(want(1000).has_value()) << "the message ends before an answer could come";
  EXPECT_FALSE(acknowledge(1000).has_value());
  wait(Duration::from_s(1));
  EXPECT_FALSE(want(0).has_value()) << "without a demand there is no demand of zero";
  const uint16_t epoch = want(1'000'000)->epoch;
  wait(kRoundTrip);
  acknowledge(1'000'000);
  EXPECT_EQ(want(1000)->epoch, epoch) << "a small message after a long one is not announced either";
  EXPECT_EQ(acknowledge(1000)->epoch, epoch);
}

TEST_F(CcPaceSender, DemandOfZeroLeavesOnceAfterADelay) {
  grant(100, 1);
  const uint16_t epoch = want(1'000'000)->epoch;
  const auto done = acknowledge(1'000'000);
  EXPECT_EQ(done->epoch, epoch) << "the receiver sees that all bytes have arrived";
  wait(Duration::from_ms(2));
  const auto last = want(0);
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->usable, Rate());
  EXPECT_EQ(last->wanted, 1'000'000U);
  EXPECT_NE(last->epoch, epoch);
  wait(Duration::from_s(1));
  EXPECT_EQ(want(0)->epoch, last->epoch);
}

// A flow that never ends updates its demand before it looks finished, also when the total wraps.
TEST_F(CcPaceSender, WantedBytesStayAheadOfAcknowledgedBytes) {
  grant(100, 1);
  want(Bytes{3} << 30);
  Bytes announced = 0;  // without wrapping
  uint16_t epoch = 0;
  for (int i = 0; i < 1000; ++i) {
    if (stats_.backlog < Bytes{2} << 30) want(Bytes{1} << 30);
    grant(100, static_cast<uint16_t>(i + 2));
    wait(Duration::from_us(10));
    const auto demand = acknowledge(16 << 20);
    const uint64_t word = wire::encode_demand(*demand);
    const Demand decoded = wire::decode_demand(word);
    const auto ahead = static_cast<int32_t>(static_cast<uint32_t>(decoded.wanted) -
                                            static_cast<uint32_t>(stats_.acked));
    ASSERT_GT(ahead, 0) << "at " << stats_.acked;
    const Bytes total = stats_.acked + static_cast<Bytes>(ahead);
    ASSERT_LE(total, stats_.acked + stats_.backlog + kWantedUnit);
    ASSERT_GE(total + kWantedUnit, announced) << "a total only grows";
    announced = total;
    epoch = demand->epoch;
  }
  EXPECT_GT(announced, Bytes{1} << 33);
  EXPECT_GT(epoch, 5);
}

// --- alignment ---

// The distance of a packet from the nearest point of the grid.
double offset_ns(Instant send, Instant granted, Duration phase, double gap) {
  const double grid = static_cast<double>((granted - kRoundTrip + phase).ns());
  const double offset = modulo(static_cast<double>(send.ns()) - grid, gap);
  return std::min(offset, gap - offset);
}

TEST_F(CcPaceSender, FirstPacketLeavesInTheGrid) {
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
    EXPECT_EQ(pace.decide(now_).grid, SendGrid()) << "the grid is set once per grant";
    wait(Duration::from_us(1));
  }
}

TEST_F(CcPaceSender, RepeatedPhaseKeepsTheGrid) {
  const double gap = pace_gap_ns(Rate::from_gbps(10), kMtu, kMtu, 64);
  want(1 << 30);
  const Instant start = now_;
  grant(10, 1, Duration());
  const Instant first = pace_.decide(now_).first_send;
  for (uint16_t i = 2; i < 100; ++i) {
    wait(Duration::from_ns(7'777));
    // The receiver grants the same grid again, with a phase that counts from now.
    grant(10, i,
          Duration::from_ns(std::llround(modulo(-static_cast<double>((now_ - start).ns()), gap))));
    const SendGrid grid = pace_.decide(now_).grid;
    EXPECT_LT(grid.point - now_, Duration::from_ns(static_cast<int64_t>(gap) + 3));
    const double off = modulo(static_cast<double>((grid.point - first).ns()), gap);
    EXPECT_LE(std::min(off, gap - off), 3);
  }
}

// Every grant changes the rate and the grid a little.
TEST_F(CcPaceSender, RealignmentKeepsTheRate) {
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
      const FlowLimits d = pace_.decide(now_);
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

// A flow with a small grant sends a packet every 21 us. When its grant is raised, it does not wait
// for the end of such a gap.
TEST_F(CcPaceSender, RaisedRateCountsFromTheNextPacket) {
  want(1 << 30);
  Pacer pacer(kMtu);
  const auto apply = [&] {
    const FlowLimits d = pace_.decide(now_);
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

TEST_F(CcPaceSender, FlowLimitedByItsLinkHasNoGrid) {
  want(1 << 30);
  acknowledge_round_trips(30);
  pace_.decide(now_);
  grant(800, 1, Duration::from_ns(64));
  EXPECT_EQ(pace_.decide(now_).grid, SendGrid());
}

// The idle time before does not allow a burst.
TEST_F(CcPaceSender, FirstPacketLeavesAtOnce) {
  cts(100, 1);
  want(1 << 30);
  const FlowLimits d = pace_.decide(now_);
  EXPECT_TRUE(d.aligned);
  EXPECT_EQ(d.first_send, now_);
}

// On a busy link a flow sends a little at once, and the rest when the receiver has answered.
TEST_F(CcPaceSender, FlowBeginsWithLittleCreditOnABusyLink) {
  Grant busy{.rate = Rate::from_gbps(100)};
  busy.busy = true;
  busy.validity = kValidity;
  busy.epoch = 1;
  pace_.on_grant(now_, busy);
  wait(Duration::from_ms(1));
  want(1 << 30);
  const FlowLimits first = pace_.decide(now_);
  EXPECT_EQ(first.rate, Rate::from_gbps(100));
  EXPECT_NEAR(static_cast<double>(first.credit),
              static_cast<double>(Rate::from_gbps(100).bytes_in(kRoundTrip / 4)), kMtu);
  wait(kRoundTrip);
  grant(70, 2);
  EXPECT_EQ(pace_.decide(now_).credit, ~Bytes{0});
  EXPECT_EQ(gbps(), 70);
}

TEST_F(CcPaceSender, FlowOnABusyLinkContinuesWithoutAnAnswer) {
  Grant busy{.rate = Rate::from_gbps(100)};
  busy.busy = true;
  busy.validity = kValidity;
  busy.epoch = 1;
  pace_.on_grant(now_, busy);
  want(1 << 30);
  pace_.decide(now_);
  wait(kRoundTrip * 4);
  const FlowLimits later = pace_.decide(now_);
  EXPECT_EQ(later.credit, ~Bytes{0});
  EXPECT_EQ(later.rate, Rate::from_gbps(100)) << "its hold";
}

}  // namespace
}  // namespace pacecar::sender_test
