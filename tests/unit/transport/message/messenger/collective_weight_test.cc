// Messenger: weights of flows, and the application's hint about its traffic.
#include <gtest/gtest.h>

#include "tests/support/sim_host.h"

namespace pacecar::test::collective_weight_test {
namespace {

class MessengerWeightTest : public testing::Test {
 protected:
  MessengerWeightTest() {
    for (size_t port = 0; port < 2; ++port) {
      hosts_.push_back(std::make_unique<SimHost>(network_, port, port));
    }
  }
  Messenger& messenger(size_t port) { return hosts_[port]->messenger(); }
  // The weights of the one flow at its sender and at its receiver.
  std::array<uint32_t, 2> weights() {
    return {messenger(0).report().weight, messenger(1).report().weight};
  }
  ConnectionPair connect_with(uint32_t weight) {
    return connect(*hosts_[0], *hosts_[1], 1, network_.now(), weight);
  }
  void close(const ConnectionPair& ends) {
    messenger(0).close_send(ends.send, network_.now());
    messenger(1).close_receive(ends.receive);
    run(network_, hosts_, network_.now() + Duration::from_ms(20), [] { return false; });
  }

  SimStar network_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
};

using Weights = std::array<uint32_t, 2>;

TEST_F(MessengerWeightTest, FlowHasTheLargestWeightOfItsConnections) {
  const ConnectionPair light = connect_with(2);
  EXPECT_EQ(weights(), (Weights{2, 2}));
  const ConnectionPair heavy = connect_with(64);
  EXPECT_EQ(weights(), (Weights{64, 64}));
  connect_with(7);
  EXPECT_EQ(weights(), (Weights{64, 64}));
  close(heavy);
  EXPECT_EQ(weights(), (Weights{7, 7}));
  close(light);
  EXPECT_EQ(weights(), (Weights{7, 7}));
}

TEST_F(MessengerWeightTest, FlowWeightFallsWhenItsHeaviestConnectionCloses) {
  connect_with(1);
  const ConnectionPair heavy = connect_with(64);
  close(heavy);
  EXPECT_EQ(weights(), (Weights{1, 1}));
}

TEST_F(MessengerWeightTest, ConnectionWithoutAWeightTakesTheMessengersWeight) {
  connect_with(0);
  EXPECT_EQ(weights(), (Weights{1, 1}));
}

TEST_F(MessengerWeightTest, HintOfMorePeersThanFlowsIsIgnored) {
  const uint32_t flows = hosts_[0]->nic().caps().flows;
  messenger(0).hint({.peers = flows}, network_.now());
  EXPECT_EQ(messenger(0).report().hint.peers, flows);
  messenger(0).hint({.peers = flows + 1}, network_.now());
  EXPECT_EQ(messenger(0).report().hint, TrafficHint());
}

}  // namespace
}  // namespace pacecar::test::collective_weight_test
