// When a simulated host with a profile takes its turns.
#include "transport/sim/host_model.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

namespace pacecar {
namespace {

Duration us(int64_t count) { return Duration::from_us(count); }

const std::vector<double> kPercents = {0, 50, 90, 100};

Quantiles quantiles(std::initializer_list<int64_t> values_us) {
  std::vector<Duration> values;
  for (const int64_t each : values_us) values.push_back(us(each));
  return {kPercents, values};
}

TEST(Quantiles, ValuesBetweenTwoQuantilesLieOnALine) {
  const Quantiles some = quantiles({10, 20, 100, 1000});
  EXPECT_EQ(some.at(0), us(10));
  EXPECT_EQ(some.at(25), us(15));
  EXPECT_EQ(some.at(50), us(20));
  EXPECT_EQ(some.at(70), us(60));
  EXPECT_EQ(some.at(100), us(1000));
}

TEST(Quantiles, DrawsHaveTheDistribution) {
  const Quantiles some = quantiles({10, 20, 100, 1000});
  Prng random(7);
  constexpr int kDraws = 100'000;
  std::vector<Duration> drawn;
  for (int i = 0; i < kDraws; ++i) drawn.push_back(some.draw(random));
  std::ranges::sort(drawn);
  for (const double percent : {5.0, 25.0, 50.0, 75.0, 90.0, 95.0}) {
    const Duration found = drawn[static_cast<size_t>(percent / 100 * kDraws)];
    // Half a percent of the draws: six standard deviations at the median.
    EXPECT_GE(found, some.at(percent - 1)) << percent;
    EXPECT_LE(found, some.at(percent + 1)) << percent;
  }
}

HostProfile profile() {
  return {.name = "late",
          .wake = quantiles({10, 10, 10, 10}),
          .pause = quantiles({5000, 5000, 5000, 5000}),
          .turn = us(2),
          .packet = us(1),
          .message = us(3)};
}

TEST(HostModel, HostThatWaitsIsWokenLate) {
  const HostProfile late = profile();
  HostModel host(late, 1);
  EXPECT_EQ(host.turn_for(Instant() + us(100)), Instant() + us(110));
}

TEST(HostModel, HostThatWorksTakesTheNextTurnWhenItIsFree) {
  const HostProfile late = profile();
  HostModel host(late, 1);
  const Instant now = Instant() + us(100);
  const Instant free = host.worked(now, 4, 2);
  EXPECT_EQ(free, now + us(2 + 4 * 1 + 2 * 3));
  EXPECT_EQ(host.turn_for(now + us(1)), free);
  EXPECT_EQ(host.turn_for(free), free + us(10)) << "it waits since then";
}

TEST(HostModel, WorkingHostPausesAsOftenAsTheProfileSays) {
  HostProfile late = profile();
  late.pauses_per_second = 1000;
  HostModel host(late, 1);
  Instant now;
  int pauses = 0;
  constexpr int kTurns = 100'000;  // of 10 us: a second of work
  for (int i = 0; i < kTurns; ++i) {
    const Instant free = host.worked(now, 8, 0);
    const Duration beyond = free - now - us(10);
    pauses += static_cast<int>(beyond.ns() / us(5000).ns());
    EXPECT_EQ(beyond.ns() % us(5000).ns(), 0);
    now = free;
  }
  EXPECT_GT(pauses, 800) << "six standard deviations below";
  EXPECT_LT(pauses, 1200);
}

TEST(HostModel, HostWithoutPausesHasNone) {
  const HostProfile late = profile();
  HostModel host(late, 1);
  EXPECT_EQ(host.worked(Instant(), 1'000'000'000, 0), Instant() + us(1'000'000'002));
}

TEST(HostModel, TurnThatCostsNothingStillTakesTime) {
  HostProfile late = profile();
  late.turn = Duration();
  HostModel host(late, 1);
  EXPECT_GT(host.worked(Instant(), 0, 0), Instant()) << "else a run would not go on";
}

TEST(HostModel, EqualSeedsGiveEqualTimes) {
  HostProfile late = profile();
  late.wake = quantiles({1, 20, 300, 4000});
  late.pauses_per_second = 100;
  HostModel one(late, 3);
  HostModel same(late, 3);
  HostModel other(late, 4);
  bool differs = false;
  Instant now;
  for (int i = 0; i < 1000; ++i) {
    now = now + us(50);
    const Instant turn = one.turn_for(now);
    EXPECT_EQ(turn, same.turn_for(now));
    differs |= turn != other.turn_for(now);
    one.worked(now, 1, 0);
    same.worked(now, 1, 0);
    other.worked(now, 1, 0);
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace pacecar
