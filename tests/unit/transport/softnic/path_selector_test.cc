#include "transport/softnic/paths/path_selector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace pacecar::path_selector_test {
namespace {

constexpr uint32_t kPaths = 8;

std::vector<uint16_t> take(PathSelector& selector, size_t count) {
  std::vector<uint16_t> paths(count);
  std::ranges::generate(paths, [&] { return selector.next(Instant()); });
  return paths;
}

bool holds_all_once(std::vector<uint16_t> paths) {
  std::ranges::sort(paths);
  for (size_t i = 0; i < paths.size(); ++i) {
    if (paths[i] != i) return false;
  }
  return true;
}

TEST(PathSelector, RoundRobinTakesThePathsInOrder) {
  PathSelector selector(PathPolicy::kRoundRobin, 3, 1);
  EXPECT_EQ(take(selector, 7), (std::vector<uint16_t>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(PathSelector, RoundRobinIgnoresFeedback) {
  PathSelector selector(PathPolicy::kRoundRobin, 3, 1);
  for (const uint16_t path : {0, 1, 2, 0}) {
    for (const PathEvent event : {PathEvent::kGood, PathEvent::kLost}) {
      for (uint16_t of = 0; of < 3; ++of) selector.on_feedback(of, {.event = event});
    }
    EXPECT_EQ(selector.next(Instant()), path);
  }
}

TEST(PathSelector, FixedStaysOnOnePathThatTheSeedDecides) {
  std::set<uint16_t> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    PathSelector selector(PathPolicy::kFixed, kPaths, seed);
    const uint16_t path = selector.next(Instant());
    EXPECT_EQ(take(selector, 10), std::vector<uint16_t>(10, path));
    seen.insert(path);
  }
  EXPECT_EQ(seen.size(), kPaths);
}

TEST(PathSelector, StickyLeavesOnlyAPathThatLoses) {
  PathSelector selector(PathPolicy::kSticky, 2, 1);
  const uint16_t path = selector.next(Instant());
  const auto other = static_cast<uint16_t>(1 - path);
  selector.on_feedback(path, {.event = PathEvent::kMarked});
  selector.on_feedback(path, {.event = PathEvent::kTrimmed});
  selector.on_feedback(other, {.event = PathEvent::kLost});  // late feedback
  EXPECT_EQ(take(selector, 3), std::vector<uint16_t>(3, path));
  selector.on_feedback(path, {.event = PathEvent::kLost});
  EXPECT_EQ(take(selector, 3), std::vector<uint16_t>(3, other));
  selector.on_feedback(other, {.event = PathEvent::kLost});
  EXPECT_EQ(selector.next(Instant()), path);
}

TEST(PathSelector, RandomUsesAllPathsAboutEvenlyAndRepeatsWithItsSeed) {
  PathSelector selector(PathPolicy::kRandom, kPaths, 7);
  PathSelector same(PathPolicy::kRandom, kPaths, 7);
  const auto paths = take(selector, 8000);
  EXPECT_EQ(take(same, 8000), paths);
  for (uint16_t path = 0; path < kPaths; ++path) {
    EXPECT_NEAR(static_cast<double>(std::ranges::count(paths, path)), 1000, 150) << path;
  }
}

TEST(PathSelector, PenaltyTakesEveryPathOncePerRoundInChangingOrder) {
  for (const uint32_t paths : {1U, 5U, kPaths}) {  // also a number other than a power of two
    PathSelector selector(PathPolicy::kPenalty, paths, 3);
    std::set<std::vector<uint16_t>> orders;
    for (int round = 0; round < 50; ++round) {
      const auto order = take(selector, paths);
      EXPECT_TRUE(holds_all_once(order));
      orders.insert(order);
    }
    EXPECT_GE(orders.size(), paths > 1 ? 2U : 1U);
  }
}

// For how many rounds a path is left out after this feedback. In each round the seven other paths
// have a turn, and in the round of the path's return some of them have theirs first.
int turns_left_out(PathEvent event, int times = 1) {
  PathSelector selector(PathPolicy::kPenalty, kPaths, 3);
  for (int i = 0; i < times; ++i) selector.on_feedback(2, {.event = event});
  int others = 0;
  while (selector.next(Instant()) != 2) ++others;
  return others / 7;
}

TEST(PathSelector, PenaltyLeavesAPathOutForSomeRounds) {
  EXPECT_EQ(turns_left_out(PathEvent::kGood), 0);
  EXPECT_EQ(turns_left_out(PathEvent::kMarked), 1);
  EXPECT_EQ(turns_left_out(PathEvent::kMarked, 3), 3);
  EXPECT_EQ(turns_left_out(PathEvent::kTrimmed), 4);
  EXPECT_EQ(turns_left_out(PathEvent::kLost), 15);
  EXPECT_EQ(turns_left_out(PathEvent::kLost, 9), 15) << "the penalty has a maximum";
}

TEST(PathSelector, PenaltyOnAllPathsExcludesNoPath) {
  PathSelector selector(PathPolicy::kPenalty, kPaths, 3);
  for (uint16_t path = 0; path < kPaths; ++path)
    selector.on_feedback(path, {.event = PathEvent::kLost});
  const auto paths = take(selector, 20 * kPaths);
  EXPECT_EQ(std::set(paths.begin(), paths.end()).size(), kPaths);
}

TEST(PathSelector, RecycleTakesGoodPathsFirstInTheOrderOfFeedback) {
  PathSelector selector(PathPolicy::kRecycle, kPaths, 3);
  for (const uint16_t path : {5, 1, 5}) selector.on_feedback(path, {.event = PathEvent::kGood});
  selector.on_feedback(6, {.event = PathEvent::kMarked});
  EXPECT_EQ(take(selector, 3), (std::vector<uint16_t>{5, 1, 5}));
  const auto rest = take(selector, kPaths - 1);
  EXPECT_EQ(std::ranges::count(rest, 6), 0);
  EXPECT_EQ(std::set(rest.begin(), rest.end()).size(), kPaths - 1);
}

TEST(PathSelector, RecycleRemembersABoundedNumberOfGoodPaths) {
  PathSelector selector(PathPolicy::kRecycle, kPaths, 3);
  for (int i = 0; i < 1000; ++i) selector.on_feedback(4, {.event = PathEvent::kGood});
  const auto paths = take(selector, 5 * kPaths);
  EXPECT_LE(std::ranges::count(paths, 4), 4 * kPaths + 1);
  EXPECT_LE(PathSelector::bytes(PathPolicy::kRecycle, kPaths), 16 * kPaths);
}

TEST(PathSelector, FeedbackOnUnknownPathsIsIgnored) {
  PathSelector selector(PathPolicy::kRecycle, kPaths, 3);
  selector.on_feedback(kPaths, {.event = PathEvent::kGood});
  selector.on_feedback(0xFFFF, {.event = PathEvent::kLost});
  for (const uint16_t path : take(selector, 100)) EXPECT_LT(path, kPaths);
}

TEST(PathSelector, OnlySomePoliciesTakeArrivalsAsFeedback) {
  EXPECT_FALSE(PathSelector(PathPolicy::kRoundRobin, kPaths, 1).learns());
  EXPECT_FALSE(PathSelector(PathPolicy::kFixed, kPaths, 1).learns());
  EXPECT_FALSE(PathSelector(PathPolicy::kRandom, kPaths, 1).learns());
  EXPECT_FALSE(PathSelector(PathPolicy::kSticky, kPaths, 1).learns());
  EXPECT_TRUE(PathSelector(PathPolicy::kPenalty, kPaths, 1).learns());
  EXPECT_TRUE(PathSelector(PathPolicy::kRecycle, kPaths, 1).learns());
  EXPECT_TRUE(PathSelector(PathPolicy::kBalanced, kPaths, 1).learns());
  EXPECT_TRUE(PathSelector(PathPolicy::kReroute, kPaths, 1).learns());
}

// A sender of constant rate, and paths that each take some time per packet; a dead path loses all
// its packets.
class Network {
 public:
  static constexpr int64_t kRoundTrip = 8000;  // ns

  explicit Network(PathSelector& selector, std::vector<int64_t> service_ns)
      : service_(std::move(service_ns)), free_at_(service_.size()), selector_(selector) {}

  void kill(uint16_t path) { dead_.insert(path); }
  void revive(uint16_t path) { dead_.erase(path); }
  void set_service(uint16_t path, int64_t ns) { service_[path] = ns; }

  // Sends a packet every `gap` ns and returns the paths of the packets.
  std::vector<uint16_t> send(int count, int64_t gap) {
    std::vector<uint16_t> taken;
    longest_delay_ = 0;
    for (int i = 0; i < count; ++i, now_ += gap) {
      feed_back();
      const uint16_t path = selector_.next(Instant::from_ns(now_));
      taken.push_back(path);
      if (dead_.contains(path)) {
        reports_.insert({now_ + 2 * kRoundTrip, {path, 0}});
        continue;
      }
      const int64_t begins = std::max(now_, free_at_[path]);
      free_at_[path] = begins + service_[path];
      longest_delay_ = std::max(longest_delay_, begins - now_);
      const int64_t rtt = begins - now_ + kRoundTrip;
      reports_.insert({now_ + rtt, {path, rtt}});
    }
    return taken;
  }
  int64_t longest_delay() const { return longest_delay_; }  // in a queue, of the last send()

 private:
  struct Report {
    uint16_t path;
    int64_t rtt;  // 0: lost
  };

  void feed_back() {
    while (!reports_.empty() && reports_.begin()->first <= now_) {
      const auto [at, report] = *reports_.begin();
      reports_.erase(reports_.begin());
      selector_.on_feedback(report.path,
                            {.event = report.rtt > 0 ? PathEvent::kGood : PathEvent::kLost,
                             .rtt = Duration::from_ns(report.rtt),
                             .now = Instant::from_ns(at)});
    }
  }

  std::vector<int64_t> service_;
  std::vector<int64_t> free_at_;
  std::multimap<int64_t, Report> reports_;  // by time
  std::set<uint16_t> dead_;
  PathSelector& selector_;
  int64_t now_ = 0;
  int64_t longest_delay_ = 0;
};

auto share(const std::vector<uint16_t>& taken, uint16_t path) {
  return static_cast<double>(std::ranges::count(taken, path)) / static_cast<double>(taken.size());
}

TEST(BalancedPaths, LoadFollowsTheCapacitiesOfThePaths) {
  // Capacities 4, 2, 1, 1, ..., together 12 packets per 800 ns; the sender wants 90% of that.
  PathSelector selector(PathPolicy::kBalanced, kPaths, 3);
  Network network(selector, {200, 400, 800, 800, 800, 800, 800, 800});
  network.send(3000, 74);
  const auto taken = network.send(20'000, 74);
  EXPECT_LT(network.longest_delay(), 3 * Network::kRoundTrip);
  EXPECT_NEAR(share(taken, 0), 4.0 / 12, 0.05);
  EXPECT_NEAR(share(taken, 1), 2.0 / 12, 0.04);
  for (uint16_t path = 2; path < kPaths; ++path) EXPECT_NEAR(share(taken, path), 1.0 / 12, 0.03);
}

TEST(BalancedPaths, UsesAllPathsWhileTheyAreAlike) {
  PathSelector selector(PathPolicy::kBalanced, 5, 3);
  Network network(selector, std::vector<int64_t>(5, 400));
  const auto taken = network.send(10'000, 100);
  for (uint16_t path = 0; path < 5; ++path) EXPECT_NEAR(share(taken, path), 0.2, 0.05);
  EXPECT_LT(network.longest_delay(), Network::kRoundTrip);
}

TEST(BalancedPaths, LeavesASlowPathAndReturnsWhenItIsFast) {
  PathSelector selector(PathPolicy::kBalanced, kPaths, 3);
  Network network(selector, std::vector<int64_t>(kPaths, 800));
  network.send(5000, 120);
  network.set_service(2, 8000);
  network.send(2000, 120);
  EXPECT_LT(share(network.send(5000, 120), 2), 0.03);
  network.set_service(2, 800);
  network.send(2000, 120);
  EXPECT_GT(share(network.send(10'000, 120), 2), 0.06);
}

TEST(BalancedPaths, LosesLittleOnADeadPathAndReturnsWhenItIsAlive) {
  for (const uint32_t paths : {4U, 64U}) {
    PathSelector selector(PathPolicy::kBalanced, paths, 3);
    Network network(selector, std::vector<int64_t>(paths, 100));
    network.send(5000, 100);
    network.kill(2);
    const auto at_first = network.send(320, 100);   // 4 round trips
    const auto later = network.send(100'000, 100);  // 1250
    EXPECT_LE(std::ranges::count(at_first, 2), 60) << paths;
    EXPECT_LE(std::ranges::count(later, 2), 12) << paths;
    EXPECT_GE(std::ranges::count(later, 2), 3) << paths << ": tried again";
    network.revive(2);
    network.send(200'000, 100);
    EXPECT_GT(share(network.send(50'000, 100), 2), 0.0) << paths;
  }
}

TEST(BalancedPaths, DelayDifferencesBelowTheFloorAreIgnored) {
  const auto share_of_slow = [](Duration floor) {
    PathSelector selector(PathPolicy::kBalanced, 4, 3, floor);
    for (int i = 0; i < 4000; ++i) {
      const Instant now = Instant::from_ns(i * 1000);
      const uint16_t path = selector.next(now);
      const auto rtt = Duration::from_us(path == 1 ? 130 : 100);
      selector.on_feedback(path, {.event = PathEvent::kGood, .rtt = rtt, .now = now});
    }
    std::vector<uint16_t> taken;
    for (int i = 0; i < 4000; ++i) {
      const Instant now = Instant::from_ns((4000 + i) * 1000);
      taken.push_back(selector.next(now));
      const auto rtt = Duration::from_us(taken.back() == 1 ? 130 : 100);
      selector.on_feedback(taken.back(), {.event = PathEvent::kGood, .rtt = rtt, .now = now});
    }
    return share(taken, 1);
  };
  EXPECT_LT(share_of_slow(Duration()), 0.05);
  EXPECT_GT(share_of_slow(Duration::from_us(50)), 0.1);
}

TEST(BalancedPaths, PathWithMarksIsLeftEvenIfDelaysAreEqual) {
  PathSelector selector(PathPolicy::kBalanced, 4, 3, Duration::from_us(100));
  std::vector<uint16_t> taken;
  for (int i = 0; i < 4000; ++i) {
    const Instant now = Instant::from_ns(i * 1000);
    taken.push_back(selector.next(now));
    selector.on_feedback(taken.back(),
                         {.event = taken.back() == 1 ? PathEvent::kMarked : PathEvent::kGood,
                          .rtt = Duration::from_us(60),
                          .now = now});
  }
  EXPECT_LT(share(taken, 1), 0.1);
}

TEST(BalancedPaths, FailureOfAllPathsDoesNotStopTheSelector) {
  for (const PathPolicy policy : {PathPolicy::kBalanced, PathPolicy::kReroute}) {
    PathSelector selector(policy, kPaths, 3);
    Network network(selector, std::vector<int64_t>(kPaths, 100));
    network.send(1000, 100);
    for (uint16_t path = 0; path < kPaths; ++path) network.kill(path);
    for (const uint16_t path : network.send(5000, 100)) ASSERT_LT(path, kPaths);
    for (uint16_t path = 0; path < kPaths; ++path) network.revive(path);
    network.send(200'000, 100);
    EXPECT_LT(network.longest_delay(), 8 * Network::kRoundTrip);
  }
}

TEST(BalancedPaths, SameSeedAndCallsGiveTheSamePaths) {
  for (const PathPolicy policy : {PathPolicy::kBalanced, PathPolicy::kReroute}) {
    const auto run = [&](uint64_t seed) {
      PathSelector selector(policy, kPaths, seed);
      Network network(selector, {200, 400, 800, 800, 800, 800, 800, 800});
      return network.send(5000, 74);
    };
    EXPECT_EQ(run(7), run(7));
    EXPECT_NE(run(7), run(8));
  }
}

// Each loss doubles the time until the next try, which is one packet, until a packet arrives.
TEST(BalancedPaths, DeadPathIsTriedAtDoublingIntervals) {
  constexpr uint16_t kDead = 2;
  constexpr int64_t kRtt = 1000;
  PathSelector selector(PathPolicy::kBalanced, 4, 3);
  const auto feed_back = [&](uint16_t path, PathEvent event, int64_t at, int64_t rtt = 0) {
    selector.on_feedback(
        path, {.event = event, .rtt = Duration::from_ns(rtt), .now = Instant::from_ns(at)});
  };
  // Packets on the dead path among the next eight, which are two rounds.
  const auto tries = [&](int64_t at) {
    int count = 0;
    for (int i = 0; i < 8; ++i) count += selector.next(Instant::from_ns(at)) == kDead ? 1 : 0;
    return count;
  };
  feed_back(0, PathEvent::kGood, 0, kRtt);
  EXPECT_GE(tries(0), 1);
  feed_back(kDead, PathEvent::kLost, 0);
  EXPECT_EQ(tries(8 * kRtt - 1), 0);
  EXPECT_EQ(tries(8 * kRtt), 1) << "one packet, until there is feedback on it";
  feed_back(kDead, PathEvent::kLost, 9 * kRtt);
  feed_back(kDead, PathEvent::kLost, 10 * kRtt);  // sent before the first loss was known
  EXPECT_EQ(tries((9 + 16) * kRtt - 1), 0);
  EXPECT_EQ(tries((9 + 16) * kRtt), 1);
  feed_back(kDead, PathEvent::kLost, 26 * kRtt);
  EXPECT_EQ(tries((26 + 32) * kRtt - 1), 0);
  EXPECT_EQ(tries((26 + 32) * kRtt), 1);
  feed_back(kDead, PathEvent::kArrived, 59 * kRtt);
  EXPECT_GE(tries(59 * kRtt), 2) << "the path is alive";
}

// The path that takes more than half of the next turns; 0xFFFF: none.
uint16_t favourite(PathSelector& selector, Instant now) {
  std::vector<uint16_t> taken;
  for (int i = 0; i < 16; ++i) taken.push_back(selector.next(now));
  for (const uint16_t path : taken) {
    if (share(taken, path) > 0.5) return path;
  }
  return 0xFFFF;
}

TEST(BalancedPaths, ArrivedBurstAddsOneTurn) {
  const Instant sent = Instant::from_ns(1'000'000);
  const Instant now = sent + Duration::from_ns(Network::kRoundTrip);
  for (const bool one_burst : {true, false}) {
    PathSelector selector(PathPolicy::kBalanced, 64, 3);
    for (int i = 0; i < 16; ++i) {
      selector.on_feedback(5, {.event = PathEvent::kGood,
                               .rtt = Duration::from_ns(Network::kRoundTrip),
                               .now = now,
                               .sent = one_burst ? sent : sent + Duration::from_ns(i)});
    }
    EXPECT_EQ(favourite(selector, now), one_burst ? 0xFFFF : 5);
  }
}

TEST(BalancedPaths, PacketsWithoutARoundTripTimeAddTurns) {
  PathSelector selector(PathPolicy::kBalanced, 64, 3);
  EXPECT_TRUE(selector.counts());
  const Instant now = Instant::from_ns(1'000'000);
  for (int i = 0; i < 16; ++i) {
    selector.on_feedback(
        5, {.event = PathEvent::kArrived, .now = now, .sent = Instant::from_ns(1000 + i)});
  }
  EXPECT_EQ(favourite(selector, now), 5);
  PathSelector recycle(PathPolicy::kRecycle, 64, 3);
  EXPECT_FALSE(recycle.counts());
}

// A packet that was acknowledged without an echo shows nothing about delay, marks or trimming.
TEST(BalancedPaths, OnlyAnEchoedPacketEndsThePenaltyOfAPath) {
  for (const bool echoed : {false, true}) {
    PathSelector selector(PathPolicy::kBalanced, kPaths, 3, Duration::from_us(1));
    const Instant now = Instant::from_ns(1'000'000);
    selector.on_feedback(5, {.event = PathEvent::kTrimmed, .now = now});
    selector.on_feedback(5, {.event = echoed ? PathEvent::kGood : PathEvent::kArrived,
                             .rtt = Duration::from_us(echoed ? 10 : 0),
                             .now = now,
                             .sent = now});
    EXPECT_EQ(selector.next(now), 5) << "the turn that the arrived packet adds";
    std::set<uint16_t> taken;
    for (uint32_t i = 0; i < kPaths; ++i) taken.insert(selector.next(now));
    EXPECT_EQ(taken.contains(5), echoed);
  }
}

TEST(BalancedPaths, MemoryIsBounded) {
  EXPECT_LE(PathSelector::bytes(PathPolicy::kBalanced, 64), 64 * 16 + 64);
  EXPECT_LE(PathSelector::bytes(PathPolicy::kReroute, 64), 16 * 32);
}

TEST(ReroutedPath, StaysOnAGoodPath) {
  PathSelector selector(PathPolicy::kReroute, kPaths, 3);
  Network network(selector, std::vector<int64_t>(kPaths, 90));
  const auto taken = network.send(10'000, 100);
  EXPECT_EQ(taken, std::vector<uint16_t>(10'000, taken.front()));
}

TEST(ReroutedPath, FindsTheOnlyFastPathWithinSomeRoundTrips) {
  PathSelector selector(PathPolicy::kReroute, kPaths, 3);
  Network network(selector, {200, 200, 200, 200, 200, 90, 200, 200});
  const int round_trip = Network::kRoundTrip / 100;
  network.send(20 * round_trip, 100);
  const auto taken = network.send(100 * round_trip, 100);
  EXPECT_EQ(share(taken, 5), 1.0);
}

TEST(ReroutedPath, LeavesADeadPathAtTheFirstLoss) {
  PathSelector selector(PathPolicy::kReroute, kPaths, 3);
  Network network(selector, std::vector<int64_t>(kPaths, 90));
  const uint16_t path = network.send(1000, 100).back();
  network.kill(path);
  const int round_trip = Network::kRoundTrip / 100;
  network.send(10 * round_trip, 100);  // 2 round trips until the loss is known, 4 to search
  EXPECT_EQ(std::ranges::count(network.send(1000, 100), path), 0);
}

TEST(ReroutedPath, SearchesFromTheFirstTrimmedPacketOn) {
  PathSelector selector(PathPolicy::kReroute, kPaths, 3);
  const auto feed_back = [&](PathEvent event, int64_t us) {
    selector.on_feedback(
        selector.next(Instant()),
        {.event = event, .rtt = Duration::from_us(10), .now = Instant::from_ns(us * 1000)});
  };
  feed_back(PathEvent::kGood, 100);  // a round trip begins
  EXPECT_FALSE(selector.searching());
  feed_back(PathEvent::kTrimmed, 101);
  EXPECT_TRUE(selector.searching()) << "or is about to search";
  for (int i = 0; i < 20; ++i) feed_back(PathEvent::kGood, 102);
  feed_back(PathEvent::kGood, 111);
  EXPECT_FALSE(selector.searching()) << "few packets were trimmed";
}

TEST(ReroutedPath, DelaysBelowTheFloorKeepThePath) {
  const auto different = [](Duration floor) {
    PathSelector selector(PathPolicy::kReroute, kPaths, 3, floor);
    std::set<uint16_t> taken;
    for (int i = 0; i < 4000; ++i) {
      const Instant now = Instant::from_ns(i * 1000);
      const uint16_t path = selector.next(now);
      taken.insert(path);
      const auto rtt = Duration::from_us(i % 100 == 0 ? 100 : 130);
      selector.on_feedback(path, {.event = PathEvent::kGood, .rtt = rtt, .now = now});
    }
    return taken.size();
  };
  EXPECT_GT(different(Duration()), 1U);
  EXPECT_EQ(different(Duration::from_us(50)), 1U);
}

}  // namespace
}  // namespace pacecar::path_selector_test
