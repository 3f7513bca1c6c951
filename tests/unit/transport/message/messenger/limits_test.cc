// Messenger: the maximum of connections, and numbers that are used again. Two simulated hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/pending.h"
#include "tests/support/sim_host.h"

namespace pacecar::test::limits_test {
namespace {

using State = MessageRequest::State;

class MessengerLimitsTest : public testing::Test {
 protected:
  static constexpr uint32_t kConnections = 2500;
  static constexpr Bytes kSize = 10'000;  // several packets

  MessengerLimitsTest() {
    for (size_t port = 0; port < 2; ++port) {
      hosts_.push_back(std::make_unique<SimHost>(network_, port, port,
                                                 SimHostConfig{.connections = kConnections}));
      memory_[port].resize(kSize);
      regions_[port] = hosts_[port]
                           ->nic()
                           .register_memory(memory_[port].data(), kSize, Access::kRemoteWrite)
                           .value();
    }
  }
  Messenger& messenger(size_t port) { return hosts_[port]->messenger(); }
  auto offer() { return messenger(0).open_send(SimHost::identity_of(1), network_.now()); }
  auto answer(const Messenger::Offered& offered) {
    return messenger(1).open_receive(offered.offer, network_.now());
  }
  ConnectionPair make() { return connect(*hosts_[0], *hosts_[1], 1, network_.now()); }
  void run_for(Duration time) {
    run(network_, hosts_, network_.now() + time, [] { return false; });
  }
  void close(const ConnectionPair& ends) {
    messenger(0).close_send(ends.send, network_.now());
    messenger(1).close_receive(ends.receive);
  }
  void receive(const ConnectionPair& ends, MessageReceive& request) {
    test::pending(request).add(memory_[1].data(), kSize, 0,
                               {regions_[1].remote_address, regions_[1].key});
    ASSERT_TRUE(messenger(1).receive(ends.receive, request, network_.now()));
  }
  void send(const ConnectionPair& ends, MessageSend& request) {
    ASSERT_TRUE(messenger(0).send(
        ends.send, test::pending(request, {memory_[0].data(), kSize, 0, regions_[0].key})));
  }
  void expect_works(const ConnectionPair& ends) {
    MessageSend sent;
    MessageReceive received;
    receive(ends, received);
    send(ends, sent);
    const auto done = [&] {
      return sent.state() == State::kDone && received.state() == State::kDone;
    };
    EXPECT_TRUE(run(network_, hosts_, network_.now() + Duration::from_s(1), done));
    EXPECT_EQ(received.sizes[0], kSize);
  }

  SimStar network_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  std::array<std::vector<uint8_t>, 2> memory_;
  std::array<MemoryRegion, 2> regions_;
};

TEST_F(MessengerLimitsTest, ConnectionsBeyondTheNumbersOfAFlowUseFurtherFlows) {
  std::vector<ConnectionPair> all;
  for (uint32_t i = 0; i < kConnections; ++i) all.push_back(make());
  EXPECT_EQ(messenger(0).report().flows, 3U);
  for (const size_t i : {0U, 1023U, 1024U, 2047U, 2048U, kConnections - 1}) {
    SCOPED_TRACE(i);
    expect_works(all[i]);
  }
  const auto more = offer();
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(more.error().message, testing::HasSubstr("raise PACECAR_MAX_CONNECTIONS"));

  for (const ConnectionPair& ends : all) close(ends);
  run_for(Duration::from_s(3));
  EXPECT_EQ(messenger(0).report().flows, 0U);
  EXPECT_EQ(messenger(1).report().flows, 0U);
  for (uint32_t i = 0; i < kConnections; ++i) all[i] = make();
  expect_works(all.back());
}

// Writes of a closed connection that are in flight fill no buffer of the next connection.
TEST_F(MessengerLimitsTest, LateWritesOfAClosedConnectionDoNotReachTheNext) {
  make();  // keeps the flow
  for (int i = 0; i < 50; ++i) {
    SCOPED_TRACE(i);
    const ConnectionPair old = make();
    MessageSend sent;
    MessageReceive received;
    receive(old, received);
    run_for(Duration::from_us(100));
    send(old, sent);
    run_for(Duration::from_ns(200 * i));  // part of the message has left
    close(old);
    const ConnectionPair next = make();
    MessageReceive untouched;
    receive(next, untouched);
    run_for(Duration::from_ms(50));
    EXPECT_EQ(untouched.state(), State::kPending);
    send(next, sent);
    run_for(Duration::from_ms(5));
    EXPECT_EQ(untouched.state(), State::kDone);
    close(next);
    run_for(Duration::from_ms(50));
    EXPECT_EQ(messenger(1).counters().protocol_errors, 0U);
  }
}

TEST_F(MessengerLimitsTest, FullQueueOfASilentPeerIsNotTriedInEveryTurn) {
  std::vector<ConnectionPair> all;
  for (int i = 0; i < 300; ++i) all.push_back(make());
  run_for(Duration::from_ms(1));
  std::vector<MessageReceive> requests(all.size());
  for (size_t i = 0; i < all.size(); ++i) receive(all[i], requests[i]);
  const auto wait_alone = [&](Duration time) {  // the peer is stopped
    for (const Instant end = network_.now() + time; network_.now() < end;) {
      network_.advance_to(network_.now() + Duration::from_ms(1));
      hosts_[1]->step(network_.now());
    }
  };
  wait_alone(Duration::from_ms(100));
  EXPECT_LE(messenger(1).next_deadline(), network_.now()) << "the queue is full";
  wait_alone(Duration::from_s(2));
  EXPECT_GT(messenger(1).next_deadline(), network_.now());
}

TEST_F(MessengerLimitsTest, OfferThatWasGivenUpIsRefused) {
  make();  // keeps the flow
  const auto given_up = offer().value();
  messenger(0).close_send(given_up.connection, network_.now());
  const ConnectionPair next = make();
  EXPECT_FALSE(answer(given_up));
  expect_works(next);
}

// The first offer was answered, but the sender never got the answer.
TEST_F(MessengerLimitsTest, NewestOfferOfANumberReplacesAnEarlierOne) {
  make();
  const auto given_up = offer().value();
  const auto answered = answer(given_up);
  ASSERT_TRUE(answered);
  messenger(0).close_send(given_up.connection, network_.now());
  expect_works(make());
  messenger(1).close_receive(answered->connection);
  run_for(Duration::from_ms(50));
  EXPECT_TRUE(messenger(1).drained());
}

}  // namespace
}  // namespace pacecar::test::limits_test
