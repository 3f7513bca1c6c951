// Messages over hostile devices: random traffic, once per seed, with links that go and come back.
// HOSTILE_SEEDS=FIRST:COUNT chooses other seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>

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

class TwoHosts : public testing::Test {
 protected:
  static constexpr size_t kSize = 4096;
  struct Message {
    std::vector<uint8_t> from = std::vector<uint8_t>(kSize, 7);
    std::vector<uint8_t> to = std::vector<uint8_t>(kSize);
    MemoryRegion local;
    MemoryRegion remote;
    MessageRequest send;
    MessageRequest receive;
  };

  void open(const hostile::Behavior& behavior) { world_.emplace(behavior, random_); }
  ConnectionPair connect() {
    return connect_messengers(messenger(0), messenger(1), 1, world_->now());
  }
  Messenger& messenger(size_t host) { return world_->messenger(host); }
  // Posts both ends of a message.
  Message& post(const ConnectionPair& ends) {
    Message& message = messages_.emplace_back();
    message.local = need(world_->nic(0), message.from, Access::kLocalRead);
    message.remote = need(world_->nic(1), message.to, Access::kRemoteWrite);
    message.send.set(MessageRequest::State::kPending);
    message.receive.set(MessageRequest::State::kPending);
    ReceiveOperation operation{.count = 1, .request = &message.receive};
    operation.buffers[0] = {message.to.data(), kSize, 0, message.remote.key};
    EXPECT_TRUE(messenger(1).receive(ends.receive, operation, world_->now()));
    EXPECT_TRUE(messenger(0).send(
        ends.send, {message.from.data(), kSize, 0, message.local.key, &message.send}));
    return message;
  }
  template <typename Done>
  bool wait(Done done) {
    return world_->run(world_->now() + Duration::from_s(5), done);
  }
  static bool ended(const MessageRequest& request) {
    return request.state() != MessageRequest::State::kPending;
  }
  static void expect_done(const MessageRequest& request) {
    EXPECT_EQ(request.state(), MessageRequest::State::kDone) << static_cast<int>(request.failure);
  }

  Prng random_{1};
  std::optional<HostileWorld> world_;
  std::deque<Message> messages_;

 private:
  static MemoryRegion need(Nic& nic, std::vector<uint8_t>& memory, Access access) {
    return nic.register_memory(memory.data(), memory.size(), access).value();
  }
};

// The sender closes as soon as it knows that all has arrived; at the receiver that is told later.
TEST_F(TwoHosts, WhatArrivedBeforeTheCloseCounts) {
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

// Connections between two NICs share their queue pairs, which the specification has break when a
// request is refused.
TEST_F(TwoHosts, OneConnectionsEndDoesNotDisturbAnother) {
  for (const size_t host : {0, 1}) {
    SCOPED_TRACE(host == 0 ? "the sender's memory goes" : "the receiver's memory goes");
    messages_.clear();
    open({.late_reading = 50});
    const ConnectionPair aborted = connect();
    const ConnectionPair other = connect();
    for (int round = 0; round < 20; ++round) {
      Message& lost = post(aborted);
      Message& kept = post(other);
      uint64_t turns = random_.below(40);
      wait([&] { return turns-- == 0; });
      messenger(host).forget_memory(host == 0 ? lost.local.key : lost.remote.key);
      world_->nic(host).deregister_memory(host == 0 ? lost.local : lost.remote);
      std::ranges::fill(host == 0 ? lost.from : lost.to, uint8_t{0xEE});
      ASSERT_TRUE(wait([&] { return ended(kept.send) && ended(kept.receive); }));
      expect_done(kept.send);
      expect_done(kept.receive);
      EXPECT_EQ(kept.to, kept.from);
    }
    messenger(1).close_receive(aborted.receive, world_->now());
    ASSERT_TRUE(wait([&] {
      return std::ranges::all_of(messages_, [](const Message& each) { return ended(each.send); });
    }));
  }
}

}  // namespace
}  // namespace pacecar::test
