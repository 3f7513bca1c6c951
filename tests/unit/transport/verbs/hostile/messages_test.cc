// Messages over hostile devices: random traffic, once per seed, with links that go down and up.
// HOSTILE_SEEDS=FIRST:COUNT chooses other seeds.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/sim/traffic.h"
#include "tests/support/draws.h"
#include "tests/support/hostile_nics.h"
#include "tests/support/two_hosts.h"

namespace pacecar::test::messages_test {
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
                             .keep_alive = HostileNics::kSilence / 3,
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

  // Lanes that fail without an outage of a link.
  void make_failures(Prng& random) {
    while (random.chance(0.5)) {
      const auto when = now() + Duration::from_us(static_cast<int64_t>(random.below(1'000)));
      failures_.push_back({when, static_cast<uint32_t>(random.below(nics_.size()))});
    }
  }

  void destroy_messenger(size_t host) { messengers_[host].reset(); }

  size_t hosts() const override { return nics_.size(); }
  Messenger& messenger(size_t host) override { return *messengers_[host]; }
  Nic& nic(size_t host) override { return nics_[host]; }
  Instant now() const override { return HostileNics::now(); }
  bool run(Instant limit, const std::function<bool()>& done) override {
    while (!done()) {
      if (now() >= limit) return false;
      for (Outage& outage : outages_) outage.turn(now());
      std::erase_if(failures_, [&](const Failure& each) {
        if (now() < each.when) return false;
        hostile::raise(each.host, IBV_EVENT_QP_FATAL);
        return true;
      });
      nics_.step();
      for (const auto& each : messengers_) {
        each->poll(now());
        each->post_control_writes(now());
      }
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

  struct Failure {
    Instant when;
    uint32_t host;
  };

  HostileNics nics_;
  std::vector<std::unique_ptr<Messenger>> messengers_;
  std::vector<Outage> outages_;
  std::vector<Failure> failures_;
};

TEST(MessagesOverHostileDevices, EveryMessageArrivesExactlyOnce) {
  const auto [first, count] = hostile_seeds(draws(200));
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Prng random(seed);
    HostileWorld world(hostile::draw_behavior(seed), random);
    world.make_outages(random);
    world.make_failures(random);
    ASSERT_EQ(Traffic(world, random).run().failure, "")
        << "replay with HOSTILE_SEEDS=" << seed << ":1";
  }
}

class TwoHostileHosts : public TwoHosts {
 protected:
  void open(const hostile::Behavior& behavior) {
    TwoHosts::open([&] { return std::make_unique<HostileWorld>(behavior, random_); });
  }
};

// The sender closes as soon as its messages are acknowledged; the receiver's completions come
// later.
TEST_F(TwoHostileHosts, MessagesThatArriveBeforeTheCloseAreDone) {
  open({.late_receives = 50'000});
  const ConnectionPair ends = connect();
  for (int i = 0; i < 24; ++i) post(ends);
  ASSERT_TRUE(wait([&] { return ended(messages_.back().send); }));
  EXPECT_FALSE(ended(messages_.back().receive)) << "the device is not hostile enough";
  messenger(0).close_send(ends.send, world_->now());
  ASSERT_TRUE(wait([&] { return ended(messages_.back().receive); }));
  for (const Message& each : messages_) expect_done(each.receive);
  EXPECT_EQ(messages_.back().to, messages_.back().from);
}

// Peers can write into the memory of a messenger as long as it has queue pairs.
TEST_F(TwoHostileHosts, MessengerDestroysItsQueuePairs) {
  for (const size_t host : {0, 1}) {
    open({});
    post(connect());
    static_cast<HostileWorld&>(*world_).destroy_messenger(host);
    size_t free = 0;
    while (world_->nic(host).create_queue_pair({})) ++free;
    EXPECT_EQ(free, HostileNics::kQueuePairs);
  }
}

// Connections between two NICs share their queue pairs, which the specification has break when a
// request is refused.
TEST_F(TwoHostileHosts, OneConnectionsEndDoesNotDisturbAnother) {
  for (const size_t host : {0, 1}) {
    open({.late_reading = 50});
    one_connections_end_disturbs_no_other(host);
  }
}

}  // namespace
}  // namespace pacecar::test::messages_test
