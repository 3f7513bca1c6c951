// The whole stack against a hostile network, once per seed: 5% each of loss, duplication,
// reordering and corruption, sometimes a partition or a stalled host; with standard RC also lanes
// that break during the traffic.
//
// PACECAR_SIM_SEEDS is how many seeds to run (with TESTS_ALL=1 200, and 60 with standard RC; else a
// quarter), PACECAR_SIM_SEED the first one.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/sim/traffic.h"
#include "tests/support/draws.h"
#include "tests/support/pending.h"
#include "tests/support/sim_host.h"
#include "tests/support/two_hosts.h"

namespace pacecar::test::hostile_network_test {
namespace {

constexpr Duration kFaultsBegin = Duration::from_ms(5);  // at the latest

// A star of hosts with software NICs.
class SimWorld final : public TrafficWorld {
 public:
  SimWorld(uint64_t seed, Prng& random, WireMode wire_mode = WireMode::kExtended) {
    const auto hosts = static_cast<uint32_t>(2 + random.below(3));
    const CableSpec cable{.rate = Rate::from_gbps(1 + random.below(100)),
                          .delay = Duration::from_ns(static_cast<int64_t>(random.below(20'000)))};
    FabricConfig config = star_config();
    config.switches.queue_bytes = 16'384 << random.below(6);
    if (random.chance(0.5)) {
      config.switches.ecn = {.kind = EcnConfig::Kind::kStep, .low = 16'384};
    }
    network_ = std::make_unique<SimStar>(hosts, config, cable, seed);
    const bool standard = wire_mode != WireMode::kExtended;
    const uint32_t eager = standard && random.chance(0.5) ? 4096 : 0;
    for (uint32_t port = 0; port < hosts; ++port) {
      const SimHostConfig host{
          .mtu = 256U << random.below(5),
          .burst_bytes = 4096,
          .window_packets = 64U << random.below(3),
          .line_rate = network_->port(port).caps().line_rate,
          .congestion_control = random.chance(0.8) ? "swift" : "fixed",
          .eager = eager,
          .wire_mode = wire_mode,
      };
      hosts_.push_back(std::make_unique<SimHost>(*network_, port, random.next_u64(), host));
    }
    make_faults(random);
    if (standard) make_upsets(random);
  }

  size_t hosts() const override { return hosts_.size(); }
  Messenger& messenger(size_t host) override { return hosts_[host]->messenger(); }
  Nic& nic(size_t host) override { return hosts_[host]->nic(); }
  Instant now() const override { return network_->now(); }
  bool run(Instant limit, const std::function<bool()>& done) override {
    return test::run(*network_, hosts_, limit, [&] {
      for (; !upsets_.empty() && now() >= upsets_.back().at; upsets_.pop_back()) {
        hosts_[upsets_.back().host]->nic().fail_rc_connections(now());
      }
      return done();
    });
  }
  void stop_faults() override {
    network_->fabric().set_faults({});
    upsets_.clear();
  }
  std::string complaint() const override {
    const bool conserved = network_->fabric().counters().conserved();
    return conserved ? "" : "the simulated network does not account for every packet";
  }

  uint64_t trace_hash() const { return network_->fabric().trace_hash(); }
  uint64_t retransmissions() const {
    uint64_t sum = 0;
    for (const auto& host : hosts_) sum += host->nic().counters().packets_retransmitted;
    return sum;
  }

 private:
  // All lanes of a host's queue pairs break.
  struct Upset {
    Instant at;
    size_t host = 0;
  };

  void make_upsets(Prng& random) {
    while (random.chance(0.8)) {
      const auto at = Duration::from_us(static_cast<int64_t>(random.below(20'000)));
      upsets_.push_back({now() + at, random.below(hosts_.size())});
    }
    std::ranges::sort(upsets_, std::ranges::greater(), &Upset::at);
  }
  void make_faults(Prng& random) {
    SimFaults faults{.loss = 0.05, .duplication = 0.05, .reordering = 0.05, .corruption = 0.05};
    const auto window = [&] {
      const auto from = Instant::from_ns(
          static_cast<int64_t>(random.below(static_cast<uint64_t>(kFaultsBegin.ns()))));
      return SimWindow{from, from + Duration::from_us(static_cast<int64_t>(random.below(3'000)))};
    };
    if (random.chance(0.3)) faults.partitions.push_back({window(), {random.below(hosts_.size())}});
    if (random.chance(0.3)) faults.stalls.push_back({window(), random.below(hosts_.size())});
    network_->fabric().set_faults(faults);
  }

  std::unique_ptr<SimStar> network_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  std::vector<Upset> upsets_;  // the next one last
};

struct Outcome {
  TrafficResult traffic;
  uint64_t trace_hash = 0;
  uint64_t retransmissions = 0;
  Instant end;
};

Outcome run_seed(uint64_t seed, WireMode wire_mode = WireMode::kExtended) {
  Prng random(seed);
  SimWorld world(seed, random, wire_mode);
  TrafficResult traffic = Traffic(world, random).run();
  return {std::move(traffic), world.trace_hash(), world.retransmissions(), world.now()};
}

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void run_seeds(uint64_t usual, WireMode wire_mode, const char* filter) {
  const uint64_t first = number_from_environment("PACECAR_SIM_SEED", 1);
  const uint64_t seeds = number_from_environment("PACECAR_SIM_SEEDS", test::draws(usual));
  uint64_t messages = 0;
  uint64_t retransmissions = 0;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const Outcome result = run_seed(seed, wire_mode);
    messages += result.traffic.messages;
    retransmissions += result.retransmissions;
    ASSERT_EQ(result.traffic.failure, "") << "replay with PACECAR_SIM_SEED=" << seed
                                          << " PACECAR_SIM_SEEDS=1 hostile_network_test "
                                             "--gtest_filter=HostileNetwork."
                                          << filter;
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::printf("%lu seeds, %lu messages, %lu retransmissions, %.2f ms per seed\n", seeds, messages,
              retransmissions, took.count() / static_cast<double>(seeds));
  EXPECT_GT(retransmissions, seeds);  // the network was hostile
}

TEST(HostileNetwork, EveryMessageArrivesExactlyOnce) {
  run_seeds(200, WireMode::kExtended, "EveryMessageArrivesExactlyOnce");
}

TEST(HostileNetwork, EveryMessageArrivesExactlyOnceOverStandardRc) {
  run_seeds(60, WireMode::kRoce, "EveryMessageArrivesExactlyOnceOverStandardRc");
}

// The time of 64 messages of 1 MiB over a link with 0.5% loss.
Duration time_over_a_lossy_cable(WireMode wire_mode) {
  constexpr size_t kMessages = 64;
  constexpr size_t kSize = 1 << 20;
  const CableSpec cable{.rate = Rate::from_gbps(10), .delay = Duration::from_us(1)};
  SimStar network(2, star_config(), cable);
  SimFaults faults;
  faults.loss = 0.005;
  network.fabric().set_faults(faults);
  std::vector<std::unique_ptr<SimHost>> hosts;
  for (uint32_t port = 0; port < 2; ++port) {
    const SimHostConfig host{
        .line_rate = cable.rate, .congestion_control = "pace", .wire_mode = wire_mode};
    hosts.push_back(std::make_unique<SimHost>(network, port, 7 + port, host));
  }
  std::vector<uint8_t> from(kSize, 7);
  std::vector<uint8_t> to(kSize);
  const auto local = hosts[0]->nic().register_memory(from.data(), kSize, Access::kLocalRead);
  const auto remote = hosts[1]->nic().register_memory(to.data(), kSize, Access::kRemoteWrite);
  const ConnectionPair ends = connect(*hosts[0], *hosts[1], 1, network.now());
  const Instant begin = network.now();
  std::deque<MessageSend> sends(kMessages);
  std::deque<MessageReceive> receives(kMessages);
  size_t posted = 0;
  const auto done = [&](size_t i) {
    return receives[i].state() != MessageRequest::State::kPending;
  };
  const auto drive = [&] {
    while (posted < kMessages && (posted < 8 || done(posted - 8))) {
      MessageReceive& receive = test::pending(receives[posted]);
      receive.add(to.data(), kSize, 0, {remote.value().remote_address, remote.value().key});
      EXPECT_TRUE(hosts[1]->messenger().receive(ends.receive, receive, network.now()));
      EXPECT_TRUE(hosts[0]->messenger().send(
          ends.send, test::pending(sends[posted], {from.data(), kSize, 0, local.value().key})));
      ++posted;
    }
    return posted == kMessages && done(kMessages - 1);
  };
  EXPECT_TRUE(test::run(network, hosts, begin + Duration::from_s(20), drive));
  return network.now() - begin;
}

// Standard RC goes back to a lost packet and retransmits packets that had arrived. `pace` must not
// take these for losses and slow down.
TEST(LossyCable, GoBackNIsNearlyAsFastAsSelectiveRetransmission) {
  const Duration one_by_one = time_over_a_lossy_cable(WireMode::kExtended);
  const Duration going_back = time_over_a_lossy_cable(WireMode::kRoce);
  EXPECT_LT(going_back, one_by_one + one_by_one / 8);
}

// Connections between two NICs share their queue pairs.
TEST_F(TwoHosts, AbortedConnectionDoesNotDisturbOthers) {
  for (const WireMode wire_mode : {WireMode::kExtended, WireMode::kRoce}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(seed);
      random_ = Prng(seed);
      open([&] { return std::make_unique<SimWorld>(seed, random_, wire_mode); });
      one_connections_end_disturbs_no_other(seed % 2);
    }
  }
}

TEST(HostileNetwork, SameSeedGivesTheSameRun) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Outcome once = run_seed(seed);
    const Outcome again = run_seed(seed);
    EXPECT_EQ(once.trace_hash, again.trace_hash) << "seed " << seed;
    EXPECT_EQ(once.end, again.end) << "seed " << seed;
    EXPECT_NE(once.trace_hash, run_seed(seed + 1000).trace_hash) << "seed " << seed;
  }
}

}  // namespace
}  // namespace pacecar::test::hostile_network_test
