// Messages from one host to another over any NICs, and a test that the end of one connection does
// not disturb another.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "tests/sim/traffic.h"
#include "tests/support/pending.h"

namespace pacecar::test {

class TwoHosts : public testing::Test {
 protected:
  static constexpr size_t kSize = 4096;
  struct Message {
    std::vector<uint8_t> from = std::vector<uint8_t>(kSize, 7);
    std::vector<uint8_t> to = std::vector<uint8_t>(kSize);
    MemoryRegion local;
    MemoryRegion remote;
    MessageSend send;
    MessageReceive receive;
  };

  // `make` makes a new world after the previous one is destroyed.
  template <typename Make>
  void open(Make make) {
    world_.reset();
    messages_.clear();
    world_ = make();
  }
  ConnectionPair connect() {
    return connect_messengers(messenger(0), messenger(1), 1, world_->now());
  }
  Messenger& messenger(size_t host) { return world_->messenger(host); }
  // Posts both ends of a message.
  Message& post(const ConnectionPair& ends) {
    Message& message = messages_.emplace_back();
    message.local = need(world_->nic(0), message.from, Access::kLocalRead);
    message.remote = need(world_->nic(1), message.to, Access::kRemoteWrite);
    pending(message.receive)
        .add(message.to.data(), kSize, 0, {message.remote.remote_address, message.remote.key});
    EXPECT_TRUE(messenger(1).receive(ends.receive, message.receive, world_->now()));
    EXPECT_TRUE(messenger(0).send(
        ends.send, pending(message.send, {message.from.data(), kSize, 0, message.local.key})));
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

  // The memory of one connection's messages is deregistered at `host` while they are in flight.
  void one_connections_end_disturbs_no_other(size_t host) {
    SCOPED_TRACE(host == 0 ? "the sender's memory goes" : "the receiver's memory goes");
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
    messenger(1).close_receive(aborted.receive);
    ASSERT_TRUE(wait([&] {
      return std::ranges::all_of(messages_, [](const Message& each) { return ended(each.send); });
    }));
  }

  Prng random_{1};
  std::unique_ptr<TrafficWorld> world_;
  std::deque<Message> messages_;

 private:
  static MemoryRegion need(Nic& nic, std::vector<uint8_t>& memory, Access access) {
    return nic.register_memory(memory.data(), memory.size(), access).value();
  }
};

}  // namespace pacecar::test
