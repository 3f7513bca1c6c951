// Messenger: connections that end in unusual ways, and stalls. The whole-stack simulation tests
// ordinary traffic.
#include <gtest/gtest.h>

#include "tests/support/pending.h"
#include "tests/support/sim_host.h"

namespace pacecar::test::transfers_test {
namespace {

class MessengerTest : public testing::Test {
 protected:
  MessengerTest() {
    for (size_t port = 0; port < 2; ++port) {
      hosts_.push_back(std::make_unique<SimHost>(network_, port, port));
    }
  }
  Messenger& messenger(size_t port) { return hosts_[port]->messenger(); }
  void run_for(Duration time) {
    run(network_, hosts_, network_.now() + time, [] { return false; });
  }

  SimStar network_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
};

// The sender gives up before it has the answer, and its flow stays open for another connection.
// When the receiver closes its end, the end must be released.
TEST_F(MessengerTest, ConnectionThatTheSenderAbandonsIsReleased) {
  connect(*hosts_[0], *hosts_[1], 1, network_.now());
  for (int i = 0; i < 100; ++i) {
    const auto offered = messenger(0).open_send(SimHost::identity_of(1), network_.now());
    ASSERT_TRUE(offered) << i;
    const auto answered = messenger(1).open_receive(offered->offer, network_.now());
    ASSERT_TRUE(answered) << i << ": " << answered.error().message;
    messenger(0).close_send(offered->connection, network_.now());
    messenger(1).close_receive(answered->connection);
    run_for(Duration::from_ms(5));
    EXPECT_TRUE(messenger(1).drained());
  }
}

TEST_F(MessengerTest, ClosedConnectionsAndTheirFlowsAreReleased) {
  for (int i = 0; i < 100; ++i) {
    const ConnectionPair ends = connect(*hosts_[0], *hosts_[1], 1, network_.now());
    messenger(0).close_send(ends.send, network_.now());
    run_for(Duration::from_ms(2));
    messenger(1).close_receive(ends.receive);
    run_for(Duration::from_s(3));
    EXPECT_EQ(messenger(0).report().flows, 0U);
    EXPECT_EQ(messenger(1).report().flows, 0U);
  }
}

TEST_F(MessengerTest, ReceiverLearnsThatTheSenderHasClosed) {
  const ConnectionPair ends = connect(*hosts_[0], *hosts_[1], 1, network_.now());
  uint8_t byte = 0;
  const auto region = hosts_[1]->nic().register_memory(&byte, 1, Access::kRemoteWrite).value();
  MessageReceive request;
  test::pending(request);
  request.add(&byte, 1, 0, {region.remote_address, region.key});
  ASSERT_TRUE(messenger(1).receive(ends.receive, request, network_.now()));
  run_for(Duration::from_ms(1));
  messenger(0).close_send(ends.send, network_.now());
  run_for(Duration::from_ms(5));
  EXPECT_EQ(request.state(), MessageRequest::State::kFailed);
  EXPECT_EQ(request.failure, MessageFailure::kPeerClosed);
}

TEST_F(MessengerTest, StallBeginsWithoutProgressAndEndsWithProgress) {
  const ConnectionPair ends = connect(*hosts_[0], *hosts_[1], 1, network_.now());
  std::vector<uint8_t> from(100), to(100);
  const auto from_region =
      hosts_[0]->nic().register_memory(from.data(), 100, Access::kLocalRead).value();
  const auto to_region =
      hosts_[1]->nic().register_memory(to.data(), 100, Access::kRemoteWrite).value();
  MessageSend sent;
  MessageReceive received;
  test::pending(received).add(to.data(), 100, 0, {to_region.remote_address, to_region.key});
  run_for(Duration::from_s(20));  // idle is not stalled
  EXPECT_EQ(messenger(0).report_changes() + messenger(1).report_changes(), 0U);

  ASSERT_TRUE(
      messenger(0).send(ends.send, test::pending(sent, {from.data(), 100, 0, from_region.key})));
  run_for(kStallLimit - Duration::from_ms(100));
  EXPECT_FALSE(messenger(0).lanes(Direction::kSend).stall(ends.send));
  run_for(Duration::from_ms(200));
  const auto stall = messenger(0).lanes(Direction::kSend).stall(ends.send);
  ASSERT_TRUE(stall);
  EXPECT_EQ(messenger(0).report_changes(), 1U);
  EXPECT_TRUE(stall->awaits_peer) << "no buffer is posted";
  EXPECT_EQ(stall->requests, 1U);
  EXPECT_EQ(stall->writes, 0U);
  EXPECT_GE(stall->lasted, kStallLimit);

  ASSERT_TRUE(messenger(1).receive(ends.receive, received, network_.now()));
  run_for(Duration::from_ms(20));
  EXPECT_EQ(sent.state(), MessageRequest::State::kDone);
  EXPECT_FALSE(messenger(0).lanes(Direction::kSend).stall(ends.send));
  EXPECT_EQ(messenger(0).report_changes(), 2U);

  received.set(MessageRequest::State::kPending);
  ASSERT_TRUE(messenger(1).receive(ends.receive, received, network_.now()));
  run_for(kStallLimit + Duration::from_ms(100));
  const auto starved = messenger(1).lanes(Direction::kReceive).stall(ends.receive);
  ASSERT_TRUE(starved);
  EXPECT_EQ(starved->requests, 1U);
  EXPECT_TRUE(starved->awaits_peer);
  EXPECT_LT(starved->silence, kNoticedSilence);
  EXPECT_FALSE(messenger(0).lanes(Direction::kSend).stall(ends.send));

  const uint64_t before = messenger(1).report_changes();
  const auto stopped = std::exchange(hosts_[0], nullptr);
  std::erase(hosts_, nullptr);
  run_for(Duration::from_s(4));
  EXPECT_EQ(hosts_[0]->messenger().report_changes(), before + 1) << "the peer has fallen silent";
  EXPECT_GE(hosts_[0]->messenger().lanes(Direction::kReceive).stall(ends.receive)->silence,
            kNoticedSilence);
}

// Servers, libfabric's provider and one-sided operations keep receives posted.
TEST_F(MessengerTest, PrepostedReceivesAreNoStall) {
  const ConnectionPair ends = connect(*hosts_[0], *hosts_[1], 1, network_.now());
  std::vector<uint8_t> to(100);
  const auto region =
      hosts_[1]->nic().register_memory(to.data(), 100, Access::kRemoteWrite).value();
  MessageReceive received;
  test::pending(received).add(to.data(), 100, 0, {region.remote_address, region.key});
  messenger(1).set_preposted(ends.receive);
  ASSERT_TRUE(messenger(1).receive(ends.receive, received, network_.now()));
  run_for(kStallLimit * 2);
  EXPECT_FALSE(messenger(1).lanes(Direction::kReceive).stall(ends.receive));
  EXPECT_EQ(messenger(1).report_changes(), 0U);
  for (const FlowStatus& flow : messenger(1).flow_statuses(network_.now())) {
    EXPECT_EQ(flow.requests, 0U);
    EXPECT_EQ(flow.still, Duration());
  }
}

// All of the message is at the NIC: no write is left that could end it at the receiver.
TEST_F(MessengerTest, DeregisteredMemoryOfASendOnItsWayEndsTheConnection) {
  constexpr Bytes kLong = 1 << 20;
  const ConnectionPair ends = connect(*hosts_[0], *hosts_[1], 1, network_.now());
  std::vector<uint8_t> from(kLong), to(2 * kLong);
  const auto from_region =
      hosts_[0]->nic().register_memory(from.data(), kLong, Access::kLocalRead).value();
  const auto to_region =
      hosts_[1]->nic().register_memory(to.data(), 2 * kLong, Access::kRemoteWrite).value();
  MessageSend sent;
  std::array<MessageReceive, 2> received;
  for (size_t i = 0; i < 2; ++i) {
    test::pending(received[i])
        .add(to.data() + i * kLong, kLong, 0,
             {to_region.remote_address + i * kLong, to_region.key});
    ASSERT_TRUE(messenger(1).receive(ends.receive, received[i], network_.now()));
  }
  ASSERT_TRUE(
      messenger(0).send(ends.send, test::pending(sent, {from.data(), kLong, 0, from_region.key})));
  run_for(Duration::from_us(30));
  ASSERT_EQ(sent.state(), MessageRequest::State::kPending);
  messenger(0).forget_memory(from_region.key);
  hosts_[0]->nic().deregister_memory(from_region);
  run_for(Duration::from_ms(50));
  EXPECT_EQ(sent.failure, MessageFailure::kMemoryGone);
  for (const MessageReceive& one : received) {
    EXPECT_EQ(one.state(), MessageRequest::State::kFailed);
    EXPECT_EQ(one.failure, MessageFailure::kPeerClosed);
  }
}

// The memory of a posted receive is deregistered: the receive fails, and so does the send to which
// the buffer was advertised.
TEST_F(MessengerTest, DeregisteredMemoryFailsItsReceive) {
  const ConnectionPair ends = connect(*hosts_[0], *hosts_[1], 1, network_.now());
  std::vector<uint8_t> from(100);
  auto to = std::make_unique<std::vector<uint8_t>>(100);
  const auto from_region =
      hosts_[0]->nic().register_memory(from.data(), 100, Access::kLocalRead).value();
  const auto to_region =
      hosts_[1]->nic().register_memory(to->data(), 100, Access::kRemoteWrite).value();
  MessageSend sent;
  MessageReceive received;
  test::pending(received).add(to->data(), 100, 0, {to_region.remote_address, to_region.key});
  ASSERT_TRUE(messenger(1).receive(ends.receive, received, network_.now()));
  run_for(Duration::from_ms(1));
  messenger(1).forget_memory(to_region.key);
  hosts_[1]->nic().deregister_memory(to_region);
  to.reset();  // the address sanitizer sees every write from here on
  EXPECT_EQ(received.failure, MessageFailure::kMemoryGone);
  ASSERT_TRUE(
      messenger(0).send(ends.send, test::pending(sent, {from.data(), 100, 0, from_region.key})));
  run_for(Duration::from_ms(50));
  EXPECT_EQ(sent.state(), MessageRequest::State::kFailed);
  EXPECT_EQ(sent.failure, MessageFailure::kPeerRefused);
}

}  // namespace
}  // namespace pacecar::test::transfers_test
