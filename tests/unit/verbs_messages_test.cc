// Messages over hostile devices: random traffic, once per seed, with links that go and come back.
// HOSTILE_SEEDS=FIRST:COUNT chooses other seeds.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "tests/sim/traffic.h"
#include "tests/support/hostile_nics.h"

namespace pacecar::test {
namespace {

class HostileWorld final : public TrafficWorld {
 public:
  HostileWorld(uint64_t seed, Prng& random)
      : nics_(hostile::draw_behavior(seed), 2 + random.below(3), 1 + random.below(4)) {
    for (size_t host = 0; host < nics_.size(); ++host) {
      messengers_.push_back(
          Messenger::create(nics_[host],
                            {.identity = identity_of_host(host),
                             .congestion_control = random.chance(0.5) ? "pace" : "swift",
                             .line_rate = nics_[host].caps().line_rate,
                             .max_connections = 64,
                             .silence_limit = HostileNics::kSilence * 10 / 6,
                             .first_flow_number = random.next_u64()},
                            now())
              .value());
    }
    while (random.chance(0.5)) {
      const auto begin = now() + Duration::from_us(static_cast<int64_t>(random.below(5'000)));
      const auto end = begin + Duration::from_us(static_cast<int64_t>(random.below(3'000)));
      outages_.push_back({begin, end, static_cast<uint32_t>(random.below(nics_.size()))});
    }
  }

  size_t hosts() const override { return nics_.size(); }
  Messenger& messenger(size_t host) override { return *messengers_[host]; }
  Nic& nic(size_t host) override { return nics_[host]; }
  Instant now() const override { return HostileNics::now(); }
  bool run(Instant limit, const std::function<bool()>& done) override {
    while (!done()) {
      if (now() >= limit) return false;
      for (Outage& outage : outages_) outage.turn(now());
      nics_.step();
      for (const auto& each : messengers_) each->poll(now());
    }
    return true;
  }
  void stop_faults() override {
    for (Outage& outage : outages_) outage.turn(Instant::never());
  }

 private:
  struct Outage {
    Instant begin;
    Instant end;
    uint32_t host;
    bool begun = false;
    bool over = false;

    void turn(Instant now) {
      if (!begun && now >= begin) {
        begun = true;
        hostile::set_link(host, false);
      }
      if (!over && now >= end) {
        over = true;
        hostile::set_link(host, true);
      }
    }
  };

  HostileNics nics_;
  std::vector<std::unique_ptr<Messenger>> messengers_;
  std::vector<Outage> outages_;
};

TEST(MessagesOverHostileDevices, EveryMessageArrivesExactlyOnce) {
  const auto [first, count] = hostile_seeds(200);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Prng random(seed);
    HostileWorld world(seed, random);
    ASSERT_EQ(Traffic(world, random).run().failure, "")
        << "replay with HOSTILE_SEEDS=" << seed << ":1";
  }
}

}  // namespace
}  // namespace pacecar::test
