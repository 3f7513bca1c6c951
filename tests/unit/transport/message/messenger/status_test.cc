// What Messenger reports of its flows: which end waits, for how long, and how much was sent.
#include <gtest/gtest.h>

#include "tests/support/pending.h"
#include "tests/support/sim_host.h"
#include "transport/wire/address.h"

namespace pacecar::test::status_test {
namespace {

constexpr Bytes kBytes = 100'000;

class MessengerStatusTest : public testing::Test {
 protected:
  MessengerStatusTest() {
    for (size_t port = 0; port < 2; ++port) {
      SimHostConfig config;
      config.congestion_control = "pace";
      hosts_.push_back(std::make_unique<SimHost>(network_, port, port, config));
    }
    ends_ = connect(*hosts_[0], *hosts_[1], 1, network_.now());
    from_region_ =
        hosts_[0]->nic().register_memory(from_.data(), kBytes, Access::kLocalRead).value();
    to_region_ = hosts_[1]->nic().register_memory(to_.data(), kBytes, Access::kRemoteWrite).value();
  }

  void send() {
    ASSERT_TRUE(hosts_[0]->messenger().send(
        ends_.send, test::pending(sent_, {from_.data(), kBytes, 0, from_region_.key})));
  }
  void receive() {
    test::pending(received_).add(to_.data(), kBytes, 0,
                                 {to_region_.remote_address, to_region_.key});
    ASSERT_TRUE(hosts_[1]->messenger().receive(ends_.receive, received_, network_.now()));
  }
  void run_for(Duration time) {
    run(network_, hosts_, network_.now() + time, [] { return false; });
  }
  // The only flow of a host.
  FlowStatus status(size_t host) {
    const auto flows = hosts_[host]->messenger().flow_statuses(network_.now());
    EXPECT_EQ(flows.size(), 1U);
    return flows.at(0);
  }

  SimStar network_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  ConnectionPair ends_;
  std::vector<uint8_t> from_ = std::vector<uint8_t>(kBytes);
  std::vector<uint8_t> to_ = std::vector<uint8_t>(kBytes);
  MemoryRegion from_region_;
  MemoryRegion to_region_;
  MessageSend sent_;
  MessageReceive received_;
};

TEST_F(MessengerStatusTest, BothEndsReportTheSameFlowNumber) {
  const FlowStatus sending = status(0);
  const FlowStatus receiving = status(1);
  EXPECT_TRUE(sending.sending);
  EXPECT_FALSE(receiving.sending);
  EXPECT_EQ(sending.number, receiving.number);
  EXPECT_EQ(sending.peer, SimHost::identity_of(1));
  EXPECT_EQ(receiving.peer, SimHost::identity_of(0));
  EXPECT_EQ(sending.peer_address, to_string(network_.port(1).local_address()));
  EXPECT_EQ(receiving.peer_address, to_string(network_.port(0).local_address()));
  EXPECT_EQ(sending.state, FlowState::kOpen);
  EXPECT_EQ(sending.connections, 1U);
}

TEST_F(MessengerStatusTest, IdleFlowsWaitForNothing) {
  run_for(Duration::from_s(20));
  for (const FlowStatus& flow : {status(0), status(1)}) {
    EXPECT_EQ(flow.requests, 0U);
    EXPECT_EQ(flow.still, Duration());
    EXPECT_FALSE(flow.awaits_peer);
  }
  EXPECT_EQ(status(0).explanation.limited_by, LimitedBy::kApplication);
}

TEST_F(MessengerStatusTest, ASenderWithoutABufferAwaitsItsPeer) {
  send();
  run_for(Duration::from_s(3));
  const FlowStatus flow = status(0);
  EXPECT_EQ(flow.requests, 1U);
  EXPECT_TRUE(flow.awaits_peer);
  EXPECT_EQ(flow.writes, 0U);
  EXPECT_GE(flow.still, Duration::from_ms(2900));
  EXPECT_EQ(flow.stats.acked, 0U);
  EXPECT_EQ(status(1).requests, 0U) << "the receiver has no request";
}

TEST_F(MessengerStatusTest, AReceiverWithoutAMessageAwaitsItsPeer) {
  receive();
  run_for(Duration::from_s(3));
  EXPECT_EQ(status(1).requests, 1U);
  EXPECT_TRUE(status(1).awaits_peer);
  EXPECT_GE(status(1).still, Duration::from_ms(2900));
  EXPECT_GT(status(1).explanation.grant, Rate()) << "the rate that the receiver grants";
  EXPECT_EQ(status(0).requests, 0U);
}

TEST_F(MessengerStatusTest, AcknowledgedBytesAreCounted) {
  send();
  receive();
  run_for(Duration::from_ms(50));
  ASSERT_EQ(sent_.state(), MessageRequest::State::kDone);
  const FlowStatus flow = status(0);
  EXPECT_EQ(flow.stats.acked, kBytes);
  EXPECT_EQ(flow.stats.sent, kBytes) << "nothing was lost";
  EXPECT_EQ(flow.stats.in_flight, 0U);
  EXPECT_EQ(flow.stats.backlog, 0U);
  EXPECT_GT(flow.rtt, Duration());
  EXPECT_EQ(flow.requests, 0U);
}

TEST_F(MessengerStatusTest, ReportDescribesTheFlowThatWasUsedLast) {
  send();
  receive();
  run_for(Duration::from_ms(50));
  const Messenger& messenger = hosts_[0]->messenger();
  const FlowReport report = messenger.report();
  EXPECT_EQ(report.flows, 1U);
  EXPECT_EQ(report.weight, 1U);
  EXPECT_GT(report.rtt, Duration());
  EXPECT_EQ(report.rtt, status(0).rtt);
  EXPECT_EQ(report.rtt, messenger.rtt(ends_.send));
  EXPECT_GT(report.limits.rate, Rate());
  const Explanation explanation = messenger.explain(ends_.send);
  EXPECT_GT(explanation.rate, Rate());
  EXPECT_EQ(explanation.limited_by, LimitedBy::kApplication) << "the flow has nothing to send";
  EXPECT_EQ(messenger.acknowledged_bytes(ends_.send), kBytes);
}

TEST_F(MessengerStatusTest, BothEndsCountMessagesAndBytes) {
  send();
  receive();
  run_for(Duration::from_ms(50));
  const MessengerCounters& sent = hosts_[0]->messenger().counters();
  EXPECT_EQ(sent.messages_sent, 1U);
  EXPECT_EQ(sent.bytes_sent, kBytes);
  EXPECT_EQ(sent.messages_received, 0U);
  EXPECT_EQ(sent.bytes_received, 0U);
  EXPECT_EQ(sent.protocol_errors, 0U);
  const MessengerCounters& received = hosts_[1]->messenger().counters();
  EXPECT_EQ(received.messages_sent, 0U);
  EXPECT_EQ(received.bytes_sent, 0U);
  EXPECT_EQ(received.messages_received, 1U);
  EXPECT_EQ(received.bytes_received, kBytes);
  EXPECT_EQ(received.protocol_errors, 0U);
}

TEST_F(MessengerStatusTest, UnacknowledgedWritesAreReported) {
  receive();
  run_for(Duration::from_ms(5));  // the sender knows of the buffer
  hosts_.pop_back();
  send();
  run_for(Duration::from_s(3));
  const FlowStatus flow = status(0);
  EXPECT_EQ(flow.requests, 1U);
  EXPECT_GT(flow.writes, 0U);
  EXPECT_FALSE(flow.awaits_peer);
  EXPECT_GT(flow.stats.backlog, 0U);
  send();  // no buffer is posted for this message
  run_for(Duration::from_ms(1));
  EXPECT_FALSE(status(0).awaits_peer) << "earlier writes are unacknowledged";
}

TEST_F(MessengerStatusTest, EachFlowHasItsOwnRequests) {
  const ConnectionPair back = connect(*hosts_[1], *hosts_[0], 0, network_.now());
  receive();  // of host 1
  run_for(Duration::from_s(1));
  const auto flows = hosts_[1]->messenger().flow_statuses(network_.now());
  ASSERT_EQ(flows.size(), 2U);
  EXPECT_FALSE(flows[0].sending);
  EXPECT_EQ(flows[0].requests, 1U);
  EXPECT_TRUE(flows[1].sending);
  EXPECT_EQ(flows[1].requests, 0U);
  ASSERT_TRUE(hosts_[1]->messenger().send(
      back.send, test::pending(sent_, {to_.data(), kBytes, 0, to_region_.key})));
  run_for(Duration::from_s(1));
  EXPECT_EQ(hosts_[1]->messenger().flow_statuses(network_.now())[1].requests, 1U);
}

TEST(MessengerStatus, BudgetIsReported) {
  SimStar network;
  std::vector<std::unique_ptr<SimHost>> hosts;
  for (size_t port = 0; port < 2; ++port) {
    SimHostConfig config;
    config.rate_max = Rate::from_gbps(7);
    hosts.push_back(std::make_unique<SimHost>(network, port, port, config));
  }
  const ConnectionPair ends = connect(*hosts[0], *hosts[1], 1, network.now());
  EXPECT_EQ(hosts[0]->messenger().explain(ends.send).rate_max, Rate::from_gbps(7));
}

TEST_F(MessengerStatusTest, DeadPeerLeavesAFault) {
  hosts_.pop_back();
  send();
  run_for(Duration::from_s(30));
  const FlowStatus flow = status(0);
  EXPECT_EQ(flow.state, FlowState::kBroken);
  EXPECT_NE(flow.fault.find("has not answered"), std::string::npos) << flow.fault;
  EXPECT_EQ(flow.peer_address, to_string(network_.port(1).local_address()));
}

}  // namespace
}  // namespace pacecar::test::status_test
