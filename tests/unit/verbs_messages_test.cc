// Messages over hostile devices: random traffic, once per seed, with links that go and come back.
// HOSTILE_SEEDS=FIRST:COUNT chooses other seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>

#include "tests/sim/traffic.h"
#include "tests/support/hostile_nics.h"

namespace pacecar::test {
namespace {

class HostileWorld final : public TrafficWorld {
 public:
  HostileWorld(const hostile::Behavior& behavior, Prng& random)
      : nics_(behavior, 2 + random.below(3), 1 + random.below(4)) {
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
  }
  void make_outages(Prng& random) {
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
    HostileWorld world(hostile::draw_behavior(seed), random);
    world.make_outages(random);
    ASSERT_EQ(Traffic(world, random).run().failure, "")
        << "replay with HOSTILE_SEEDS=" << seed << ":1";
  }
}

// The sender closes as soon as it knows that all has arrived; at the receiver that is told later.
TEST(MessagesOverHostileDevices, WhatArrivedBeforeTheCloseCounts) {
  constexpr size_t kMessages = 24;
  constexpr size_t kSize = 4096;
  Prng random(1);
  HostileWorld world({.late_receives = 50'000}, random);
  const ConnectionPair ends =
      connect_messengers(world.messenger(0), world.messenger(1), 1, world.now());
  std::vector<uint8_t> from(kSize, 7);
  std::vector<std::vector<uint8_t>> to(kMessages, std::vector<uint8_t>(kSize));
  const auto local = world.nic(0).register_memory(from.data(), kSize, Access::kLocalRead).value();
  std::deque<MessageRequest> sends(kMessages);
  std::deque<MessageRequest> receives(kMessages);
  for (size_t i = 0; i < kMessages; ++i) {
    const auto remote =
        world.nic(1).register_memory(to[i].data(), kSize, Access::kRemoteWrite).value();
    sends[i].set(MessageRequest::State::kPending);
    receives[i].set(MessageRequest::State::kPending);
    ReceiveOperation operation{.count = 1, .request = &receives[i]};
    operation.buffers[0] = {to[i].data(), kSize, 0, remote.key};
    ASSERT_TRUE(world.messenger(1).receive(ends.receive, operation, world.now()));
    ASSERT_TRUE(world.messenger(0).send(ends.send, {from.data(), kSize, 0, local.key, &sends[i]}));
  }
  const auto ended = [](const std::deque<MessageRequest>& requests) {
    return std::ranges::none_of(requests, [](const MessageRequest& each) {
      return each.state() == MessageRequest::State::kPending;
    });
  };
  ASSERT_TRUE(world.run(world.now() + Duration::from_s(5), [&] { return ended(sends); }));
  EXPECT_FALSE(ended(receives)) << "the device is not hostile enough";
  world.messenger(0).close_send(ends.send, world.now());
  ASSERT_TRUE(world.run(world.now() + Duration::from_s(5), [&] { return ended(receives); }));
  for (const MessageRequest& each : receives) {
    EXPECT_EQ(each.state(), MessageRequest::State::kDone) << static_cast<int>(each.failure);
  }
  EXPECT_EQ(to.back(), from);
}

}  // namespace
}  // namespace pacecar::test
