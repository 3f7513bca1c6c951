// The whole stack against a hostile network, once per seed: 5% loss, duplication, reordering and
// corruption at once, sometimes a partition or a stalled host.
//
// PACECAR_SIM_SEEDS is how many seeds to run (200), PACECAR_SIM_SEED the first one.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/sim/traffic.h"
#include "tests/support/sim_host.h"

namespace pacecar::test {
namespace {

constexpr Duration kFaultsBegin = Duration::from_ms(5);  // at most so late

// A star of hosts with software NICs.
class SimWorld final : public TrafficWorld {
 public:
  SimWorld(uint64_t seed, Prng& random) {
    const auto hosts = static_cast<uint32_t>(2 + random.below(3));
    const CableSpec cable{.rate = Rate::from_gbps(1 + random.below(100)),
                          .delay = Duration::from_ns(static_cast<int64_t>(random.below(20'000)))};
    FabricConfig config = star_config();
    config.switches.queue_bytes = 16'384 << random.below(6);
    if (random.chance(0.5)) {
      config.switches.ecn = {.kind = EcnConfig::Kind::kStep, .low = 16'384};
    }
    network_ = std::make_unique<SimStar>(hosts, config, cable, seed);
    for (uint32_t port = 0; port < hosts; ++port) {
      const SimHostConfig host{
          .mtu = 256U << random.below(5),
          .burst_bytes = 4096,
          .window_packets = 64U << random.below(3),
          .line_rate = network_->port(port).caps().line_rate,
          .congestion_control = random.chance(0.8) ? "swift" : "fixed",
      };
      hosts_.push_back(std::make_unique<SimHost>(*network_, port, random.next_u64(), host));
    }
    make_faults(random);
  }

  size_t hosts() const override { return hosts_.size(); }
  Messenger& messenger(size_t host) override { return hosts_[host]->messenger(); }
  Nic& nic(size_t host) override { return hosts_[host]->nic(); }
  Instant now() const override { return network_->now(); }
  bool run(Instant limit, const std::function<bool()>& done) override {
    return test::run(*network_, hosts_, limit, done);
  }
  void stop_faults() override { network_->fabric().set_faults({}); }
  std::string complaint() const override {
    const bool conserved = network_->fabric().counters().conserved();
    return conserved ? "" : "the simulated network lost count of a packet";
  }

  uint64_t trace_hash() const { return network_->fabric().trace_hash(); }
  uint64_t retransmissions() const {
    uint64_t sum = 0;
    for (const auto& host : hosts_) sum += host->nic().counters().packets_retransmitted;
    return sum;
  }

 private:
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
};

struct Outcome {
  TrafficResult traffic;
  uint64_t trace_hash = 0;
  uint64_t retransmissions = 0;
  Instant end;
};

Outcome run_seed(uint64_t seed) {
  Prng random(seed);
  SimWorld world(seed, random);
  TrafficResult traffic = Traffic(world, random).run();
  return {std::move(traffic), world.trace_hash(), world.retransmissions(), world.now()};
}

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(HostileNetwork, EveryMessageArrivesExactlyOnce) {
  const uint64_t first = number_from_environment("PACECAR_SIM_SEED", 1);
  const uint64_t seeds = number_from_environment("PACECAR_SIM_SEEDS", 200);
  uint64_t messages = 0;
  uint64_t retransmissions = 0;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const Outcome result = run_seed(seed);
    messages += result.traffic.messages;
    retransmissions += result.retransmissions;
    ASSERT_EQ(result.traffic.failure, "")
        << "replay with PACECAR_SIM_SEED=" << seed
        << " PACECAR_SIM_SEEDS=1 hostile_network_test "
           "--gtest_filter=HostileNetwork.EveryMessageArrivesExactlyOnce";
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::printf("%lu seeds, %lu messages, %lu retransmissions, %.2f ms per seed\n", seeds, messages,
              retransmissions, took.count() / static_cast<double>(seeds));
  EXPECT_GT(retransmissions, seeds);  // the network was hostile indeed
}

TEST(HostileNetwork, TheSameSeedGivesTheSameRun) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Outcome once = run_seed(seed);
    const Outcome again = run_seed(seed);
    EXPECT_EQ(once.trace_hash, again.trace_hash) << "seed " << seed;
    EXPECT_EQ(once.end, again.end) << "seed " << seed;
    EXPECT_NE(once.trace_hash, run_seed(seed + 1000).trace_hash) << "seed " << seed;
  }
}

}  // namespace
}  // namespace pacecar::test
