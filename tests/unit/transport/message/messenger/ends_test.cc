// Messenger: how flows and connections begin, fail and end, and how NIC reports are handled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scripted_nic.h"

namespace pacecar::test::ends_test {
namespace {

using State = MessageRequest::State;

// --- flows and connections begin ---

// Whatever fails at the NIC, the attempt leaves no region, queue pair or flow.
TEST(MessengerEnds, FailedOfferLeavesNothingBehind) {
  for (const auto& [regions, queue_pairs] : {std::pair{0, 9}, {1, 9}, {9, 0}, {9, 1}}) {
    SCOPED_TRACE(regions * 10 + queue_pairs);
    ScriptedPair pair;
    ScriptedNic& nic = pair.nic[0];
    const uint32_t registered = nic.registered();
    const size_t before = nic.queue_pairs();
    nic.regions_left = static_cast<uint32_t>(regions);
    nic.queue_pairs_left = static_cast<uint32_t>(queue_pairs);
    const auto offered = pair.messenger(0).open_send(identity_of_host(5), pair.now);
    ASSERT_FALSE(offered);
    EXPECT_EQ(offered.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(nic.registered(), registered);
    EXPECT_EQ(nic.queue_pairs(), before);
    EXPECT_EQ(pair.messenger(0).report().flows, 1U);
    nic.regions_left = nic.queue_pairs_left = 9;
    for (int i = 0; i < 7; ++i) {  // all places are free but that of the first connection
      EXPECT_TRUE(pair.messenger(0).open_send(identity_of_host(1), pair.now)) << i;
    }
  }
}

TEST(MessengerEnds, FailedAnswerLeavesNothingBehind) {
  for (int failing = 0; failing < 5; ++failing) {
    SCOPED_TRACE(failing);
    ScriptedPair pair;
    ScriptedNic& nic = pair.nic[1];
    const uint32_t registered = nic.registered();
    const size_t before = nic.queue_pairs();
    ScriptedNic stranger_nic(ScriptedNic::usual());
    MessengerConfig config = ScriptedPair::fixed();
    config.identity = identity_of_host(7);
    const auto stranger = Messenger::create(stranger_nic, config, pair.now).value();
    const auto offered = stranger->open_send(identity_of_host(1), pair.now).value();
    nic.regions_left = failing == 0 ? 0 : failing == 1 ? 1 : 9;
    nic.queue_pairs_left = failing == 2 ? 0 : failing == 3 ? 1 : 9;
    nic.connects = failing != 4;
    EXPECT_FALSE(pair.messenger(1).open_receive(offered.offer, pair.now));
    EXPECT_EQ(nic.registered(), registered);
    EXPECT_EQ(nic.queue_pairs(), before);
    EXPECT_EQ(pair.messenger(1).report().flows, 1U);
    nic.regions_left = nic.queue_pairs_left = 9;
    nic.connects = true;
    EXPECT_TRUE(pair.messenger(1).open_receive(offered.offer, pair.now));
  }
}

TEST(MessengerEnds, FlowWhoseQueuePairsCannotConnectIsBroken) {
  ScriptedPair pair;
  ScriptedPair other;
  const auto offered = pair.messenger(0).open_send(identity_of_host(3), pair.now).value();
  const auto answered = other.messenger(1).open_receive(offered.offer, pair.now).value();
  pair.nic[0].connects = false;
  EXPECT_FALSE(pair.messenger(0).finish_send(offered.connection, answered.answer, pair.now));
  EXPECT_TRUE(pair.messenger(0).suspect_flow(offered.connection, ErrorCode::kPeer, pair.now));
  pair.messenger(0).close_send(offered.connection, pair.now);
  pair.run_for(Duration::from_ms(20));
  EXPECT_EQ(pair.messenger(0).report().flows, 1U);
  EXPECT_EQ(pair.nic[0].queue_pairs(), 2U) << "those of the first flow";
}

TEST(MessengerEnds, MoreFlowsThanTheNicHasAreRefused) {
  MessengerConfig config = ScriptedPair::fixed();
  config.max_connections = 16;
  ScriptedPair pair(ScriptedNic::usual(), config);
  Messenger& messenger = pair.messenger(0);
  ConnectionId last = 0;
  for (size_t host = 11; host < 18; ++host) {
    last = messenger.open_send(identity_of_host(host), pair.now).value().connection;
  }
  const auto refused = messenger.open_send(identity_of_host(18), pair.now);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("PACECAR_MAX_FLOWS"));
  EXPECT_TRUE(messenger.open_send(identity_of_host(1), pair.now)) << "over an existing flow";
  messenger.close_send(last, pair.now);
  EXPECT_TRUE(messenger.open_send(identity_of_host(18), pair.now));
}

TEST(MessengerEnds, ArrivalsAreReportedOnlyIfTheAllocatorUsesThem) {
  ScriptedPair without;
  EXPECT_FALSE(without.nic[1].reports_arrivals);
  MessengerConfig config = ScriptedPair::fixed();
  config.congestion_control = "pace";
  ScriptedPair with(ScriptedNic::usual(), config);
  EXPECT_TRUE(with.nic[1].reports_arrivals);
}

TEST(MessengerEnds, BrokenFlowIsNotShared) {
  ScriptedPair pair;
  pair.nic[0].completions.push_back({.queue_pair = 1, .kind = CompletionKind::kBroken});
  const auto offered = pair.messenger(0).open_send(identity_of_host(1), pair.now).value();
  EXPECT_EQ(pair.messenger(0).report().flows, 2U) << "a new flow is made";
  pair.nic[1].completions.push_back({.queue_pair = 1, .kind = CompletionKind::kBroken});
  ScriptedPair other;
  const auto joined = other.messenger(0).open_send(identity_of_host(1), pair.now).value();
  other.nic[1].completions.push_back({.queue_pair = 1, .kind = CompletionKind::kBroken});
  const auto refused = other.messenger(1).open_receive(joined.offer, pair.now);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kStale);
  EXPECT_TRUE(pair.messenger(1).open_receive(offered.offer, pair.now));
}

TEST(MessengerEnds, OfferIsAcceptedOnce) {
  ScriptedPair pair;
  const auto offered = pair.messenger(0).open_send(identity_of_host(1), pair.now).value();
  EXPECT_TRUE(pair.messenger(1).open_receive(offered.offer, pair.now));
  EXPECT_FALSE(pair.messenger(1).open_receive(offered.offer, pair.now));
}

// Another lane's NIC has had no place for its part of the connection.
TEST(MessengerEnds, WithdrawnAnswerLeavesNothing) {
  ScriptedPair pair;
  ScriptedNic stranger_nic(ScriptedNic::usual());
  MessengerConfig config = ScriptedPair::fixed();
  config.identity = identity_of_host(7);
  const auto stranger = Messenger::create(stranger_nic, config, pair.now).value();
  for (Messenger* const sender : {&pair.messenger(0), stranger.get()}) {
    const auto offered = sender->open_send(identity_of_host(1), pair.now).value();
    const uint32_t registered = pair.nic[1].registered();
    const auto answered = pair.messenger(1).open_receive(offered.offer, pair.now).value();
    pair.messenger(1).withdraw_receive(answered.connection, pair.now);
    EXPECT_LE(pair.nic[1].registered(), registered + 1) << "of the flow, which stays for a while";
    EXPECT_TRUE(pair.messenger(1).open_receive(offered.offer, pair.now));
  }
}

TEST(MessengerEnds, ConnectionWhoseNumberIsOfferedAgainHasLostItsPeer) {
  ScriptedPair pair;
  const auto given_up = pair.messenger(0).open_send(identity_of_host(1), pair.now).value();
  const auto answered = pair.messenger(1).open_receive(given_up.offer, pair.now).value();
  const auto& received = pair.receive({given_up.connection, answered.connection}, 100);
  pair.messenger(0).close_send(given_up.connection, pair.now);
  const ConnectionPair next = pair.connect();
  EXPECT_EQ(received.failure, MessageFailure::kPeerClosed);
  const auto& other = pair.receive(next, 100);
  pair.run();
  pair.send(next, 100);
  pair.run();
  EXPECT_EQ(other.state(), State::kDone);
}

// --- flows and connections end ---

TEST(MessengerEnds, RequestsOfAClosedEndAreNotTouched) {
  ScriptedPair pair;
  const auto& received = pair.receive();
  pair.receive();
  pair.run();
  const auto& sent = pair.send(100);
  const auto& waiting = pair.send(ScriptedPair::kMemory);
  pair.turn(0);
  pair.messenger(0).close_send(pair.ends.send, pair.now);
  pair.messenger(1).close_receive(pair.ends.receive);
  pair.run_for(Duration::from_ms(20));
  EXPECT_EQ(received.state(), State::kPending);
  EXPECT_EQ(sent.state(), State::kPending);
  EXPECT_EQ(waiting.state(), State::kPending);
}

TEST(MessengerEnds, ConnectionThatNeverOpenedIsReleased) {
  ScriptedPair pair;
  const auto offered = pair.messenger(0).open_send(identity_of_host(1), pair.now).value();
  const auto& sent = pair.send({offered.connection, 0}, 100);
  pair.messenger(0).close_send(offered.connection, pair.now);
  pair.run_for(Duration::from_ms(20));
  EXPECT_EQ(sent.state(), State::kPending);
  EXPECT_FALSE(pair.messenger(0).releasing_sends());
}

TEST(MessengerEnds, SendsFailAtOnceAfterThePeerHasClosed) {
  ScriptedPair pair;
  pair.messenger(1).close_receive(pair.ends.receive);
  pair.run_for(Duration::from_ms(20));
  const auto& first = pair.send(100);
  pair.run_for(Duration::from_ms(20));
  EXPECT_EQ(first.failure, MessageFailure::kPeerClosed);
  const auto& second = pair.send(100);
  EXPECT_EQ(second.state(), State::kFailed);
  EXPECT_EQ(second.failure, MessageFailure::kPeerClosed);
}

// The NIC reads the table until the last write from it is acknowledged.
TEST(MessengerEnds, TableStaysRegisteredUntilItsWritesAreAcknowledged) {
  ScriptedPair pair;
  pair.receive();
  pair.turn(1);
  ScriptedNic& nic = pair.nic[1];
  const uint32_t registered = nic.registered();
  pair.messenger(0).close_send(pair.ends.send, pair.now);
  pair.messenger(1).close_receive(pair.ends.receive);
  pair.nic[0].deliver(nic);
  ASSERT_EQ(nic.posted.size(), 2U);
  std::swap(nic.posted[0], nic.posted[1]);
  nic.deliver_one(pair.nic[0]);  // the close word
  for (int i = 0; i < 4; ++i) {
    pair.now = pair.now + Duration::from_ms(6);
    pair.turn(1);
  }
  EXPECT_EQ(nic.registered(), registered);
  EXPECT_TRUE(pair.messenger(1).releasing_receives());
  nic.deliver_one(pair.nic[0]);  // the slot
  pair.now = pair.now + Duration::from_ms(6);
  pair.turn(1);
  EXPECT_EQ(nic.registered(), registered - 1);
  EXPECT_FALSE(pair.messenger(1).releasing_receives());
}

TEST(MessengerEnds, FlowWithoutConnectionsIsKeptForAFifthOfTheSilenceLimit) {
  ScriptedPair pair;  // whose silence limit is ten seconds
  const std::array registered = {pair.nic[0].registered(), pair.nic[1].registered()};
  pair.messenger(0).close_send(pair.ends.send, pair.now);
  pair.messenger(1).close_receive(pair.ends.receive);
  pair.run_for(Duration::from_ms(1900));
  for (size_t host : {0, 1}) {
    EXPECT_EQ(pair.messenger(host).report().flows, 1U);
    EXPECT_FALSE(pair.messenger(host).releasing_sends());
    EXPECT_FALSE(pair.messenger(host).releasing_receives());
  }
  pair.run_for(Duration::from_ms(150));
  for (size_t host : {0, 1}) {
    EXPECT_EQ(pair.messenger(host).report().flows, 0U);
    EXPECT_EQ(pair.nic[host].queue_pairs(), 0U);
    EXPECT_EQ(pair.nic[host].registered(), registered[host] - 2) << "table and word";
    EXPECT_EQ(pair.messenger(host).next_deadline(), Instant::never());
  }
}

TEST(MessengerEnds, BrokenQueuePairFailsItsFlowAndNoOther) {
  ScriptedPair pair;
  const auto other = connect_messengers(pair.messenger(1), pair.messenger(0), 0, pair.now);
  const auto& sent = pair.send(100);
  pair.turn(0);
  pair.nic[0].completions.push_back({.queue_pair = 99, .kind = CompletionKind::kBroken});
  pair.turn(0);
  EXPECT_EQ(sent.state(), State::kPending) << "this NIC has no such queue pair";
  pair.nic[0].completions.push_back({.queue_pair = 2, .kind = CompletionKind::kBroken});
  pair.turn(0);
  EXPECT_EQ(sent.state(), State::kFailed);
  EXPECT_EQ(sent.failure, MessageFailure::kPeerSilent);
  EXPECT_EQ(pair.nic[0].queue_pairs(), 2U) << "those of the other direction";
  const auto& again = pair.send(100);
  EXPECT_EQ(again.failure, MessageFailure::kPeerSilent) << "later sends fail at once";
  pair.run_for(Duration::from_ms(20));
  EXPECT_EQ(pair.messenger(0).next_deadline(), Instant::never()) << "nothing is to be done";
  pair.messenger(0).close_send(pair.ends.send, pair.now);
  pair.run_for(Duration::from_ms(20));
  EXPECT_EQ(pair.messenger(0).report().flows, 1U);
  EXPECT_EQ(pair.nic[0].queue_pairs(), 2U);
  pair.messenger(0).close_receive(other.receive);
  EXPECT_TRUE(pair.messenger(0).releasing_receives());
}

TEST(MessengerEnds, PeerThatRefusesASlotHasClosed) {
  ScriptedPair pair;
  const auto& received = pair.receive();
  pair.turn(1);
  ASSERT_EQ(pair.nic[1].posted.size(), 1U);
  pair.nic[1].acknowledge_one(CompletionStatus::kRemoteAccessError);
  pair.turn(1);
  EXPECT_EQ(received.failure, MessageFailure::kPeerClosed);
  pair.messenger(1).close_receive(pair.ends.receive);
  EXPECT_FALSE(pair.messenger(1).drained()) << "the close word is sent all the same";
  ASSERT_EQ(pair.nic[1].posted.size(), 1U);
  pair.nic[1].acknowledge_one(CompletionStatus::kRemoteAccessError);
  pair.now = pair.now + Duration::from_ms(6);
  pair.turn(1);
  EXPECT_TRUE(pair.messenger(1).drained());
  EXPECT_FALSE(pair.messenger(1).releasing_receives());
}

TEST(MessengerEnds, CloseWordWithoutRoomAtTheNicIsSentLater) {
  ScriptedPair pair;
  for (size_t host : {0, 1}) pair.nic[host].room = 0;
  pair.messenger(0).close_send(pair.ends.send, pair.now);
  pair.messenger(1).close_receive(pair.ends.receive);
  EXPECT_FALSE(pair.messenger(0).drained());
  EXPECT_FALSE(pair.messenger(1).drained());
  for (size_t host : {0, 1}) pair.nic[host].room = 10;
  pair.run_for(Duration::from_ms(20));
  for (size_t host : {0, 1}) EXPECT_TRUE(pair.messenger(host).drained());
  EXPECT_FALSE(pair.messenger(0).releasing_sends());
  EXPECT_FALSE(pair.messenger(1).releasing_receives());
}

// The close word overtakes the completions of writes that were acknowledged before.
class MessengerLateCompletions : public testing::Test {
 protected:
  MessengerLateCompletions() : received_(pair_.receive()), waiting_(pair_.receive()) {
    pair_.run();
    pair_.send(100);
    pair_.turn(0);
    pair_.nic[0].deliver(pair_.nic[1]);
    late_.swap(pair_.nic[1].completions);
    pair_.turn(0);
    pair_.messenger(0).close_send(pair_.ends.send, pair_.now);
    pair_.run();
  }

  ScriptedPair pair_;
  std::deque<Completion> late_;
  MessageReceive& received_;
  MessageReceive& waiting_;
};

TEST_F(MessengerLateCompletions, LateCompletionsAreAwaited) {
  pair_.run_for(Duration::from_s(1));
  EXPECT_EQ(received_.state(), State::kPending);
  pair_.nic[1].completions.swap(late_);
  pair_.run_for(Duration::from_ms(20));
  EXPECT_EQ(received_.state(), State::kDone);
  EXPECT_EQ(waiting_.state(), State::kFailed);
  EXPECT_EQ(waiting_.failure, MessageFailure::kPeerClosed);
}

TEST_F(MessengerLateCompletions, LateCompletionsAreAwaitedForTheSilenceLimit) {
  pair_.run_for(Duration::from_ms(9900));
  EXPECT_EQ(received_.state(), State::kPending);
  pair_.run_for(Duration::from_ms(200));
  EXPECT_EQ(received_.state(), State::kFailed);
  EXPECT_EQ(received_.failure, MessageFailure::kPeerClosed);
}

// --- words that show whether the peer lives ---

TEST(MessengerEnds, WaitingReceiverWritesAWordEachFifthOfTheSilenceLimit) {
  ScriptedPair pair;
  pair.run_for(Duration::from_s(5));
  const auto words_to = [&](size_t host) { return pair.nic[host].counted.silent_packets_received; };
  EXPECT_EQ(words_to(0) + words_to(1), 0U) << "no request is pending";
  pair.receive();
  pair.run();
  const uint64_t before = words_to(0);
  pair.run_for(Duration::from_s(20), Duration::from_ms(5));
  EXPECT_GE(words_to(0) - before, 9U) << "every 2 s, a fifth of the silence limit";
  EXPECT_LE(words_to(0) - before, 11U);
  EXPECT_EQ(words_to(1), 0U);
}

TEST(MessengerEnds, FlowWritesNoWordRightAfterItHasBegun) {
  ScriptedPair pair;
  pair.receive();
  pair.send(100);
  pair.nic[0].deliver(pair.nic[1]);
  pair.messenger(1).poll(pair.now);
  const size_t slots = 1;
  pair.run_for(Duration::from_ms(1900), Duration::from_ms(5));
  EXPECT_EQ(pair.nic[0].counted.silent_packets_received, slots);
  EXPECT_EQ(pair.nic[1].counted.silent_packets_received, 0U);
}

TEST(MessengerEnds, WaitingSenderWritesAWordEachFifthOfTheSilenceLimit) {
  ScriptedPair pair;
  pair.send(100);
  pair.run_for(Duration::from_s(20), Duration::from_ms(5));
  EXPECT_GE(pair.nic[1].counted.silent_packets_received, 9U);
  EXPECT_LE(pair.nic[1].counted.silent_packets_received, 11U);
}

// --- what the NIC reports ---

TEST(MessengerEnds, AnyNumberOfSignalsAddUp) {
  ScriptedPair pair;
  for (int i = 0; i < 300; ++i) {
    pair.nic[0].signals.push_back({.acked = 10, .in_flight = 7, .sent = 5000});
  }
  pair.nic[0].signals.push_back({.flow = 5, .acked = 1});  // of a flow that does not exist
  pair.nic[0].signals.push_back({.rtt = Duration::from_us(9), .sharing = 3, .sent = 6000});
  pair.nic[0].signals.push_back({.in_flight = 8, .sent = 7000});
  pair.turn(0);
  const FlowStatus status = pair.messenger(0).flow_statuses(pair.now).at(0);
  EXPECT_EQ(status.stats.acked, 3000U);
  EXPECT_EQ(status.stats.in_flight, 8U);
  EXPECT_EQ(status.stats.sent, 7000U);
  EXPECT_EQ(status.stats.sharing, 3U) << "from the last signal that has it";
  EXPECT_EQ(status.rtt, Duration::from_us(9)) << "from the last signal that has it";
}

TEST(MessengerEnds, BacklogIsTheUnacknowledgedBytes) {
  ScriptedPair pair;
  for (int i = 0; i < 2; ++i) pair.receive();
  pair.run();
  for (int i = 0; i < 2; ++i) pair.send(1000);
  pair.turn(0);
  const auto backlog = [&] { return pair.messenger(0).flow_statuses(pair.now)[0].stats.backlog; };
  EXPECT_EQ(backlog(), 2000U);
  pair.nic[0].signals.push_back({.acked = 700});
  pair.turn(0);
  EXPECT_EQ(backlog(), 1300U);
  pair.nic[0].deliver_one(pair.nic[1]);
  pair.turn(0);
  EXPECT_EQ(backlog(), 1300U) << "a write is still at the NIC";
  pair.nic[0].deliver_one(pair.nic[1]);
  pair.turn(0);
  EXPECT_EQ(backlog(), 0U) << "no write is at the NIC";
  pair.nic[0].signals.push_back({.acked = 1300});
  pair.turn(0);
  EXPECT_EQ(backlog(), 0U);
}

TEST(MessengerEnds, ImmediatesOfUnknownConnectionsAreProtocolErrors) {
  ScriptedPair pair;
  const auto& received = pair.receive();
  pair.run();
  const auto arrives = [&](QueuePairId queue_pair, uint32_t connection) {
    const Immediate immediate{.connection = connection, .slot = 0, .writes = 1};
    pair.nic[1].completions.push_back({.queue_pair = queue_pair,
                                       .immediate = immediate.pack(),
                                       .kind = CompletionKind::kReceived});
    pair.turn(1);
    return pair.messenger(1).counters().protocol_errors;
  };
  EXPECT_EQ(arrives(1, 1), 1U) << "no connection has this number";
  EXPECT_EQ(arrives(2, 0), 2U) << "the queue pair for words";
  EXPECT_EQ(arrives(77, 0), 3U) << "an unknown queue pair";
  EXPECT_EQ(received.state(), State::kPending);
  EXPECT_EQ(arrives(1, 0), 3U);
  EXPECT_EQ(received.state(), State::kDone);
}

TEST(MessengerEnds, ProtocolErrorOfThePeerFailsItsConnection) {
  ScriptedPair pair;
  const auto& received = pair.receive(100);
  pair.run();
  const Immediate immediate{.connection = 0, .slot = 0, .writes = 1};
  pair.nic[1].completions.push_back({.bytes = 101,
                                     .queue_pair = 1,
                                     .immediate = immediate.pack(),
                                     .kind = CompletionKind::kReceived});
  pair.turn(1);
  EXPECT_EQ(received.failure, MessageFailure::kPeerProtocol);
  EXPECT_EQ(pair.messenger(1).counters().protocol_errors, 1U);
}

TEST(MessengerEnds, UnchangedLimitIsNotSetAgain) {
  ScriptedPair pair;
  const auto exchange = [&] {
    pair.receive();
    pair.run();
    pair.send(100);
    pair.run_for(Duration::from_ms(50));
    return pair.nic[0].limits.size();
  };
  const size_t limits = exchange();
  ASSERT_GT(limits, 0U);
  EXPECT_EQ(exchange(), limits);
  EXPECT_EQ(pair.nic[0].limits.back().first, 0U);
  EXPECT_NEAR(pair.nic[0].limits.back().second.rate.gbps(), 100, 0.1);
  EXPECT_TRUE(pair.nic[1].limits.empty()) << "this NIC sends nothing";
}

}  // namespace
}  // namespace pacecar::test::ends_test
