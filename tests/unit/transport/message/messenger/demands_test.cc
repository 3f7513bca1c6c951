// Messenger: what the allocator learns of receives, and which limits and words follow; the test
// plays the NIC and the peer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/scripted_nic.h"

namespace pacecar::test::demands_test {
namespace {

using State = MessageRequest::State;

MessengerConfig with(const char* congestion_control) {
  MessengerConfig config = ScriptedPair::fixed();
  config.congestion_control = congestion_control;
  return config;
}

// A receiver with the flows of two senders.
class MessengerAllocation : public testing::Test {
 protected:
  explicit MessengerAllocation(uint32_t eager = 0) : pair_(ScriptedNic::usual(), config(eager)) {
    MessengerConfig other = config(0);
    other.identity = identity_of_host(7);
    stranger_ = Messenger::create(stranger_nic_, other, pair_.now).value();
    const auto offered = stranger_->open_send(identity_of_host(1), pair_.now).value();
    const auto answered = receiver().open_receive(offered.offer, pair_.now).value();
    EXPECT_TRUE(stranger_->finish_send(offered.connection, answered.answer, pair_.now));
    strangers_ = {offered.connection, answered.connection};
  }
  static MessengerConfig config(uint32_t eager) {
    MessengerConfig config = with("pace");
    config.eager = eager;
    return config;
  }
  Messenger& receiver() { return pair_.messenger(1); }
  // The grant of the second sender's idle flow, in Gb/s.
  double granted() {
    pair_.receive(strangers_, 1000);
    for (int i = 0; i < 20; ++i) {
      pair_.now = pair_.now + Duration::from_us(50);
      pair_.turn(1);
    }
    for (const FlowStatus& flow : receiver().flow_statuses(pair_.now)) {
      if (flow.peer == identity_of_host(7)) return flow.explanation.grant.gbps();
    }
    return 0;
  }
  void expect_alone() { EXPECT_GT(granted(), 90); }
  void expect_shared() { EXPECT_LT(granted(), 60); }

  ScriptedPair pair_;
  ScriptedNic stranger_nic_{ScriptedNic::usual()};
  std::unique_ptr<Messenger> stranger_;
  ConnectionPair strangers_;
};

TEST_F(MessengerAllocation, AFlowWithoutAReceiveDoesNotCount) { expect_alone(); }

TEST_F(MessengerAllocation, AFlowCountsWhileAReceiveIsPosted) {
  pair_.receive();
  expect_shared();
}

TEST_F(MessengerAllocation, FlowCountsWhileALongMessageArrives) {
  pair_.receive();
  pair_.receive();
  pair_.run();
  pair_.send(ScriptedPair::kMemory);
  pair_.run();
  expect_shared();
}

TEST_F(MessengerAllocation, FlowCountsWhileABufferOfAReceiveIsUnfilled) {
  pair_.receive(pair_.ends, 1000, 8);
  pair_.run();
  pair_.send(1000);
  pair_.run();
  expect_shared();
}

TEST_F(MessengerAllocation, ShortMessageFreesItsWholeBuffer) {
  const auto& received = pair_.receive(50'000);
  pair_.run();
  pair_.send(1);
  pair_.run();
  ASSERT_EQ(received.state(), State::kDone);
  expect_alone();
}

TEST_F(MessengerAllocation, FailedReceiveDoesNotCount) {
  const auto& received = pair_.receive();
  receiver().break_flow(Direction::kReceive, pair_.ends.receive);
  EXPECT_EQ(received.state(), State::kFailed);
  expect_alone();
}

TEST_F(MessengerAllocation, RenewedReceivesOfALaneDoNotCount) {
  pair_.receive();
  receiver().renew_receives(pair_.ends.receive, pair_.now);
  expect_alone();
}

class MessengerEagerAllocation : public MessengerAllocation {
 protected:
  MessengerEagerAllocation() : MessengerAllocation(1000) {}
};

TEST_F(MessengerEagerAllocation, BufferForAnArrivedEagerMessageDoesNotCount) {
  pair_.send(10);
  pair_.run();
  const auto& received = pair_.receive();
  ASSERT_EQ(received.state(), State::kDone);
  expect_alone();
}

// --- demand ---

TEST(MessengerDemand, LimitsOfAnIdleFlowAreNotSet) {
  ScriptedPair pair(ScriptedNic::usual(), with("swift"));
  const auto signal = [&] {
    pair.nic[0].signals.push_back(
        {.rtt = Duration::from_us(500), .acked = 100'000, .sent = 100'000});
    pair.turn(0);
    return pair.nic[0].limits.size();
  };
  const size_t before = pair.nic[0].limits.size();
  EXPECT_EQ(signal(), before);
  pair.receive();
  pair.run();
  pair.send(1);
  pair.turn(0);
  EXPECT_GT(pair.nic[0].limits.size(), before) << "the flow has something to send";
}

TEST(MessengerDemand, LimitOfAFlowIsCountedWhileARequestIsPending) {
  ScriptedPair pair;
  const auto looks = [&] {
    const LimitCounts counts = pair.messenger(0).flow_statuses(pair.now).at(0).limits;
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  };
  EXPECT_EQ(looks(), 0U);
  pair.send(100);
  pair.run_for(Duration::from_ms(52));
  EXPECT_GE(looks(), 9U) << "every five milliseconds";
  EXPECT_LE(looks(), 12U);
}

TEST(MessengerDemand, ControlWritesAreInHostMemoryAndMayOvertake) {
  ScriptedPair pair(ScriptedNic::usual(), with("rccc"));
  pair.receive();
  pair.turn(1);
  ASSERT_FALSE(pair.nic[1].posted.empty());
  for (const auto& write : pair.nic[1].posted) {
    EXPECT_TRUE(write.request.host);
    EXPECT_TRUE(write.request.passing);
  }
  pair.nic[1].deliver(pair.nic[0]);
  pair.send(5000);
  pair.turn(0);
  ASSERT_EQ(pair.nic[0].posted.size(), 2U);
  EXPECT_TRUE(pair.nic[0].posted[1].request.host);
  EXPECT_TRUE(pair.nic[0].posted[1].request.passing);
}

// --- memory ---

TEST(MessengerMemory, FlowTakesTheMemoryOfItsQueuePairsAndLittleMore) {
  const auto memory = [](uint64_t factor) {
    NicCaps caps = ScriptedNic::usual();
    ScriptedPair pair(caps);
    pair.nic[0].state_factor = factor;
    return pair.messenger(0).flow_memory();
  };
  EXPECT_EQ(memory(1).queues, 3U) << "the queues of both queue pairs";
  EXPECT_EQ(memory(2).state - memory(1).state, 256U + 64U)
      << "the work requests of both queue pairs";
  EXPECT_GT(memory(1).state, 256U + 64U);
  EXPECT_LT(memory(1).state, 8192U);
}

}  // namespace
}  // namespace pacecar::test::demands_test
