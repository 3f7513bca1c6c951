// `pace` on hosts with jitter: they get no phases, and only grants and demands that they can
// follow.
#include <gtest/gtest.h>

#include <array>

#include "cc/pace/phase.h"
#include "cc/pace/receiver.h"
#include "cc/pace/sender.h"

namespace pacecar::jitter_test {
namespace {

constexpr Bytes kEndless = Bytes{1} << 30;
constexpr FlowEnvironment kFabric{.line_rate = Rate::from_gbps(400),
                                  .mtu = 4096,
                                  .overhead = 64,
                                  .burst_bytes = 4096,
                                  .base_rtt = Duration::from_us(8)};

FlowEnvironment late_by(Duration jitter) {
  FlowEnvironment environment = kFabric;
  environment.jitter = jitter;
  return environment;
}

TEST(CcPaceJitter, BurstLastsAsLongAsTheJitter) {
  FlowEnvironment environment = late_by(kFabric.base_rtt);
  environment.burst_bytes = Bytes{1} << 20;
  EXPECT_EQ(pace_burst(Rate::from_gbps(400), environment), 97 * 4096U) << "400,000 bytes in 8 us";
}

TEST(CcPaceJitter, FlowKeepsNoPhaseWhenJitterExceedsABurst) {
  Instant now = Instant::from_ns(1'000'000'000);
  const FlowEnvironment environment = late_by(Duration::from_us(20));
  LinkShare link(environment, 1, PaceConstants{}.regrant);
  PaceController pace(environment, PaceConstants{}, link, 0);
  pace.demand(now, {.backlog = kEndless});
  pace.decide(now);
  now = now + Duration::from_us(1);
  pace.on_grant(now, {.rate = Rate::from_gbps(10),
                      .phase = Duration::from_ns(640),
                      .aligned = true,
                      .validity = Duration::from_us(100),
                      .epoch = 1});
  EXPECT_EQ(pace.decide(now).grid, SendGrid());
}

// Other flows of the sender begin and end, and change the usable rate each time.
TEST(CcPaceJitter, UsableRateIsAdvertisedOncePerJitter) {
  Instant now = Instant::from_ns(1'000'000'000);
  const FlowEnvironment environment = late_by(Duration::from_us(20));
  LinkShare link(environment, 2, PaceConstants{}.regrant);
  PaceController one(environment, PaceConstants{}, link, 0);
  PaceController other(environment, PaceConstants{}, link, 1);
  const FlowStats busy{.backlog = kEndless};
  const Demand alone = *one.demand(now, busy);
  now = now + environment.jitter / 2;
  other.demand(now, busy);
  EXPECT_EQ(one.demand(now, busy)->epoch, alone.epoch);
  now = now + environment.jitter / 2;
  EXPECT_EQ(one.demand(now, busy)->usable, Rate::from_gbps(200));
}

// A message that may leave at once does, although the NIC's bursts are shorter: its pacing begins
// one jitter earlier, or at the start of the clock.
TEST(CcPaceJitter, MessageBeginsWithTheBytesOfOneJitter) {
  for (const bool bursts_are_longer : {false, true}) {
    FlowEnvironment environment = late_by(Duration::from_us(20));
    const Bytes at_once = environment.line_rate.bytes_in(environment.jitter);
    environment.burst_bytes = bursts_are_longer ? at_once * 2 : at_once / 4;
    LinkShare link(environment, 1, PaceConstants{}.regrant);
    PaceController pace(environment, PaceConstants{}, link, 0);
    Instant now;
    for (const Duration pause : {Duration::from_us(5), Duration::from_ms(10)}) {
      now = now + pause;
      pace.demand(now, {.backlog = 0});
      pace.decide(now);
      pace.demand(now, {.backlog = at_once});
      const FlowLimits decision = pace.decide(now);
      ASSERT_TRUE(decision.aligned);
      const Duration earned = bursts_are_longer ? Duration() : std::min(pause, environment.jitter);
      EXPECT_EQ(decision.first_send, now - earned);
    }
  }
}

// An answer would come after the message has left, and the message needs no part of the link.
TEST(CcPaceJitter, MessageWithinTheJitterIsNeitherAnnouncedNorShared) {
  const Instant now = Instant::from_ns(1'000'000'000);
  const Bytes some = kFabric.line_rate.bytes_in(kFabric.base_rtt / 2);
  for (const Duration jitter : {Duration(), kFabric.base_rtt}) {
    const bool exact = jitter == Duration();
    const FlowEnvironment environment = late_by(jitter);
    LinkShare link(environment, 1, PaceConstants{}.regrant);
    PaceController pace(environment, PaceConstants{}, link, 0);
    pace.decide(now);
    EXPECT_EQ(pace.demand(now, {.backlog = some}).has_value(), exact);
    EXPECT_EQ(link.active(), exact ? 1U : 0U);
    EXPECT_TRUE(pace.demand(now, {.backlog = some * 2}).has_value());
    EXPECT_EQ(link.active(), 1U);
    // All but a little is in flight.
    pace.demand(now, {.backlog = some * 2, .in_flight = some * 3 / 2, .sent = some * 3 / 2});
    EXPECT_EQ(link.active(), exact ? 1U : 0U);
  }
}

TEST(CcPaceJitter, HoldIsGrantedAgainOnlyWhenItChangesByAFactorOfTwo) {
  for (const Duration jitter : {Duration(), Duration::from_us(100)}) {
    PaceReceiver receiver(late_by(jitter), 8);
    Instant now = Instant::from_ns(1'000'000'000);
    std::array<GrantUpdate, 8> words;
    const auto granted = [&](uint32_t peers) {
      receiver.on_hint(now, {.peers = peers});
      now = now + Duration::from_ms(1);
      return receiver.poll_grants(now, words);
    };
    for (uint32_t flow = 0; flow < 8; ++flow) {
      receiver.add_flow(now, flow);
      receiver.on_posted(now, flow, kEndless);
    }
    EXPECT_EQ(granted(8), 8U);
    EXPECT_EQ(granted(5), jitter == Duration() ? 8U : 0U);
    EXPECT_EQ(granted(3), 8U);
  }
}

// The sixth flow begins first: its rate stays as it is, but its phase changes.
TEST(CcPaceJitter, NewPhaseIsGrantedOnlyWhereHostsKeepPhases) {
  for (const Duration jitter : {Duration(), Duration::from_us(100)}) {
    const FlowEnvironment environment = late_by(jitter);
    PaceReceiver receiver(environment, 8);
    Instant now = Instant::from_ns(1'000'000'000);
    std::array<GrantUpdate, 8> words;
    for (uint32_t flow = 0; flow < 6; ++flow) receiver.add_flow(now, flow);
    const auto wake = [&](uint16_t epoch, Bytes wanted) {
      receiver.on_demand(now, 5,
                         {.usable = environment.line_rate, .wanted = wanted, .epoch = epoch});
      return receiver.poll_grants(now, words);
    };
    receiver.on_posted(now, 5, kEndless);
    EXPECT_EQ(receiver.poll_grants(now, words), 1U);
    for (uint16_t i = 1; i <= 2; ++i) {  // afterwards its hold is no longer a guess
      now = now + Duration::from_us(2);
      wake(i, Bytes{4096} * i);
      receiver.on_arrival(now, 5, 4096, {1000, 4096});
      now = now + (i == 1 ? Duration::from_ms(1) : Duration::from_us(5));
      receiver.poll_grants(now, words);
    }
    now = now + Duration::from_us(2);
    EXPECT_EQ(wake(3, kEndless), jitter == Duration() ? 1U : 0U);
  }
}

}  // namespace
}  // namespace pacecar::jitter_test
