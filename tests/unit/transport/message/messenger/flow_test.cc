// Messenger: flows that end between a connection's offer and its answer. Two simulated hosts.
#include <gtest/gtest.h>

#include "tests/support/sim_host.h"

namespace pacecar::test::flow_test {
namespace {

class MessengerFlowTest : public testing::Test {
 protected:
  using Offered = Messenger::Offered;

  MessengerFlowTest() {
    for (size_t port = 0; port < 2; ++port) {
      hosts_.push_back(std::make_unique<SimHost>(network_, port, port));
    }
  }
  Messenger& sender() { return hosts_[0]->messenger(); }
  Messenger& receiver() { return hosts_[1]->messenger(); }
  Offered offer() { return sender().open_send(SimHost::identity_of(1), network_.now()).value(); }
  auto answer(const Offered& offered) {
    return receiver().open_receive(offered.offer, network_.now());
  }
  auto finish(const Offered& offered, const Messenger::Answered& answered) {
    return sender().finish_send(offered.connection, answered.answer, network_.now());
  }
  ConnectionId make(const Offered& offered) {
    const auto answered = answer(offered).value();
    PACECAR_CHECK(finish(offered, answered).has_value());
    return answered.connection;
  }
  bool doubt(const Offered& offered, ErrorCode failure = ErrorCode::kStale) {
    return sender().suspect_flow(offered.connection, failure, network_.now());
  }
  void give_up(const Offered& offered) { sender().close_send(offered.connection, network_.now()); }
  // Runs until the receiver has ended the flow; the sender keeps it for connections still offered.
  void close(const Offered& offered, ConnectionId receive) {
    give_up(offered);
    receiver().close_receive(receive);
    run(network_, hosts_, network_.now() + Duration::from_s(3), [] { return false; });
    ASSERT_EQ(receiver().report().flows, 0U);
    ASSERT_EQ(sender().report().flows, 1U);
  }
  void expect_new_connection(const Offered& failed) {
    EXPECT_TRUE(doubt(failed));
    give_up(failed);
    const Offered again = offer();
    const auto answered = answer(again);
    ASSERT_TRUE(answered) << answered.error().message;
    const auto finished = finish(again, *answered);
    EXPECT_TRUE(finished) << finished.error().message;
  }

  SimStar network_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
};

TEST_F(MessengerFlowTest, OfferToJoinAFlowThatTheReceiverHasEndedIsRefused) {
  const Offered first = offer();
  const ConnectionId receive = make(first);
  const Offered second = offer();
  close(first, receive);
  const auto answered = answer(second);
  ASSERT_FALSE(answered);
  EXPECT_EQ(answered.error().code, ErrorCode::kStale);
  EXPECT_EQ(receiver().report().flows, 0U) << "nothing is kept of the offer";
  expect_new_connection(second);
}

// The receiver no longer knows the flow and makes a new one, which the sender notices.
TEST_F(MessengerFlowTest, AnswerFromAnotherFlowThanTheOfferedIsRefused) {
  const Offered first = offer();
  const Offered second = offer();
  close(first, make(first));
  const auto answered = answer(second);
  ASSERT_TRUE(answered);
  const auto finished = finish(second, *answered);
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, ErrorCode::kStale);
  expect_new_connection(second);
}

TEST_F(MessengerFlowTest, AnswerOverABrokenFlowIsRefused) {
  const Offered first = offer();
  make(first);
  const Offered second = offer();
  const auto answered = answer(second).value();
  sender().break_flow(Direction::kSend, first.connection);
  EXPECT_FALSE(finish(second, answered));
  expect_new_connection(second);
}

TEST_F(MessengerFlowTest, FlowOfOneConnectionIsDoubtedOnlyWhenBroken) {
  const Offered only = offer();
  EXPECT_FALSE(doubt(only));
  sender().break_flow(Direction::kSend, only.connection);
  EXPECT_TRUE(doubt(only));
}

TEST_F(MessengerFlowTest, FlowIsSharedAfterARefusalForAnotherReason) {
  make(offer());
  for (const ErrorCode failure : {ErrorCode::kPeer, ErrorCode::kUnavailable}) {
    EXPECT_FALSE(doubt(offer(), failure));
  }
  make(offer());
  EXPECT_EQ(sender().report().flows, 1U);
}

// Connections that use a suspected flow continue.
TEST_F(MessengerFlowTest, DoubtedFlowTakesNoNewConnections) {
  const Offered first = offer();
  make(first);
  const Offered second = offer();
  EXPECT_EQ(sender().report().flows, 1U);
  EXPECT_TRUE(doubt(second));
  make(offer());
  make(offer());
  EXPECT_EQ(sender().report().flows, 2U);
  EXPECT_EQ(sender().lanes(Direction::kSend).lane(first.connection).failure, MessageFailure::kNone);
}

}  // namespace
}  // namespace pacecar::test::flow_test
