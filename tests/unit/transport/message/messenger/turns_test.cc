// Messenger: what a poll posts, what waits for the next poll, and when the next poll is due.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/pending.h"
#include "tests/support/scripted_nic.h"

namespace pacecar::test::turns_test {
namespace {

using State = MessageRequest::State;

NicCaps with_writes_of(Bytes bytes) {
  NicCaps caps = ScriptedNic::usual();
  caps.write_bytes = bytes;
  return caps;
}

// --- posting ---

// The data writes at the NIC, by connection.
std::array<size_t, 2> posted_by_connection(const ScriptedNic& nic) {
  std::array<size_t, 2> count{};
  for (const auto& write : nic.posted) {
    if (write.data()) ++count.at(Immediate::unpack(write.request.immediate).connection);
  }
  return count;
}

TEST(MessengerTurns, ConnectionsPostTheirWritesInTurn) {
  ScriptedPair pair(with_writes_of(1000));
  const ConnectionPair other = pair.connect();
  for (const auto& ends : {pair.ends, other}) pair.receive(ends, 20'000);
  pair.run();
  for (const auto& ends : {pair.ends, other}) pair.send(ends, 20'000);
  std::array<size_t, 2> before{};
  for (int turn = 0; before[0] < 20; ++turn) {
    ASSERT_LT(turn, 10);
    pair.messenger(0).poll(pair.now);
    const auto posted = posted_by_connection(pair.nic[0]);
    EXPECT_EQ(posted[0], posted[1]);
    EXPECT_GT(posted[0], before[0]);
    EXPECT_LE(posted[0], before[0] + 10) << "neither connection delays the other";
    EXPECT_EQ(pair.messenger(0).next_deadline() == Instant(), posted[0] < 20)
        << "the next poll is due at once while writes are left";
    before = posted;
  }
  pair.run();
  EXPECT_EQ(pair.messenger(1).counters().messages_received, 2U);
  EXPECT_EQ(pair.messenger(0).counters().bytes_sent, 40'000U);
}

TEST(MessengerTurns, SendsToAFullNicAreTriedAgainAtTheNextPoll) {
  ScriptedPair pair(with_writes_of(1000));
  pair.receive(20'000);
  pair.run();
  const auto& sent = pair.send(20'000);
  pair.nic[0].room = 5;
  pair.turn(0);
  EXPECT_EQ(pair.nic[0].count(true), 5U);
  EXPECT_GT(pair.messenger(0).next_deadline(), pair.now)
      << "a completion will make room, so no poll is due";
  pair.nic[0].room = 100;
  pair.run();
  EXPECT_EQ(sent.state(), State::kDone);
}

// Else each send would cost as much as there are connections.
TEST(MessengerTurns, ConnectionsOfAFullQueuePairAreNotTriedOneByOne) {
  ScriptedPair pair(with_writes_of(1000));
  std::vector<ConnectionPair> connections{pair.ends};
  while (connections.size() < 8) connections.push_back(pair.connect());
  for (const auto& ends : connections) pair.receive(ends, 20'000);
  pair.run();
  pair.nic[0].room = 5;
  for (const auto& ends : connections) {
    pair.send(ends, 3000);
    pair.messenger(0).post_submitted_sends(pair.now);
  }
  EXPECT_EQ(pair.nic[0].count(true), 5U);
  EXPECT_EQ(pair.nic[0].refused, 1U) << "a completion will make room";
  pair.nic[0].room = 4;
  pair.nic[0].deliver_one(pair.nic[1]);
  pair.messenger(0).poll(pair.now);
  EXPECT_EQ(pair.nic[0].count(true), 8U);
  EXPECT_EQ(pair.nic[0].refused, 2U);
  pair.nic[0].room = 100;
  pair.run();
  EXPECT_EQ(pair.messenger(1).counters().messages_received, 8U);
}

// A job may have thousands of connections to a peer that computes.
TEST(MessengerTurns, StallsOfAFlowAreReportedOnce) {
  ScriptedPair pair;
  std::vector<ConnectionPair> connections{pair.ends};
  while (connections.size() < 8) connections.push_back(pair.connect());
  for (const auto& ends : connections) pair.send(ends, 20'000);
  pair.run_for(kStallLimit * 2);
  EXPECT_EQ(pair.messenger(0).report_changes(), 1U);
  const auto begun = pair.messenger(0).take_stalls();
  ASSERT_EQ(begun.size(), 1U);
  EXPECT_EQ(begun[0].stall.connections, 8U);
  EXPECT_EQ(begun[0].stall.requests, 8U);
  EXPECT_TRUE(begun[0].sending && !begun[0].over);
  for (const auto& ends : connections) {
    EXPECT_EQ(pair.messenger(0).report_changes(), 1U) << "some wait still";
    pair.receive(ends, 20'000);
    pair.run_for(Duration::from_ms(50));
  }
  const auto over = pair.messenger(0).take_stalls();
  ASSERT_EQ(over.size(), 1U);
  EXPECT_TRUE(over[0].over);
}

// The NIC paces whole writes.
TEST(MessengerTurns, WriteSizeIsAMillisecondOfTheFlowsRate) {
  struct Case {
    uint64_t mbps;
    Bytes write;
  };
  for (const auto& [mbps, write] : {Case{80, 9216}, Case{1, 1024}, Case{100'000, 16384}}) {
    SCOPED_TRACE(mbps);
    NicCaps caps = with_writes_of(16384);
    caps.paces_packets = false;
    MessengerConfig config = ScriptedPair::fixed();
    config.line_rate = Rate::from_bps(mbps * 1'000'000);
    ScriptedPair pair(caps, config);
    pair.receive();
    pair.run();
    pair.send(40'000);
    pair.turn(0);
    ASSERT_GE(pair.nic[0].count(true), 3U);
    EXPECT_EQ(pair.nic[0].posted[0].request.length, write) << "in whole packets";
  }
}

TEST(MessengerTurns, SubmittedSendIsPostedWithoutAWholePoll) {
  ScriptedPair pair;
  pair.receive();
  pair.run();
  pair.send(100);
  pair.messenger(0).post_submitted_sends(pair.now);
  EXPECT_EQ(pair.nic[0].count(true), 1U);
}

// Writes may overtake each other, so the write that abandons the message is posted last.
TEST(MessengerTurns, RefusedMessageIsAbandonedOnceItsWritesAreComplete) {
  ScriptedPair pair(with_writes_of(1000));
  pair.receive(20'000);
  pair.run();
  const auto& sent = pair.send(20'000);
  pair.messenger(0).poll(pair.now);
  const size_t posted = pair.nic[0].count(true);
  ASSERT_GT(posted, 1U);
  pair.nic[0].acknowledge_one(CompletionStatus::kRemoteAccessError);
  pair.turn(0);
  EXPECT_EQ(pair.nic[0].count(true), posted - 1)
      << "nothing is posted while other writes are in flight";
  while (!pair.nic[0].posted.empty()) pair.nic[0].acknowledge_one();
  pair.turn(0);
  ASSERT_EQ(pair.nic[0].count(true), 1U);
  EXPECT_EQ(pair.nic[0].posted[0].request.length, 0U);
  EXPECT_EQ(Immediate::unpack(pair.nic[0].posted[0].request.immediate).writes,
            Immediate::kAbandoned);
  EXPECT_EQ(sent.state(), State::kPending);
  pair.nic[0].acknowledge_one();
  pair.turn(0);
  EXPECT_EQ(sent.failure, MessageFailure::kPeerRefused);
}

TEST(MessengerTurns, SendsOfDeregisteredMemoryFailUnlessTheyAreAtTheNic) {
  ScriptedPair pair;
  pair.receive();
  pair.run();
  const auto& at_the_nic = pair.send(100);
  pair.turn(0);
  const auto& waiting = pair.send(100);
  pair.messenger(0).forget_memory(pair.nic[0].posted[0].request.local_key + 1);
  EXPECT_EQ(waiting.state(), State::kPending) << "other memory";
  pair.messenger(0).forget_memory(pair.nic[0].posted[0].request.local_key);
  EXPECT_EQ(waiting.failure, MessageFailure::kMemoryGone);
  EXPECT_EQ(at_the_nic.state(), State::kPending);
}

// A queue in the receive buffer does not show in the network.
TEST(MessengerTurns, WindowIsAtMostAQuarterOfTheReceiveBuffer) {
  NicCaps caps = ScriptedNic::usual();
  caps.receive_bytes = 64 << 10;
  ScriptedPair pair(caps);
  ASSERT_FALSE(pair.nic[0].limits.empty());
  EXPECT_EQ(pair.nic[0].limits.back().second.window, Bytes{16 << 10});
  ScriptedPair unknown;
  EXPECT_GT(unknown.nic[0].limits.back().second.window, Bytes{16 << 10});
}

// The demand of a send of at most one packet may wait for the next poll.
TEST(MessengerTurns, DemandIsSentWithALongSendAndAfterAShortOne) {
  for (const Bytes size : {Bytes{1024}, Bytes{1025}}) {
    MessengerConfig config = ScriptedPair::fixed();
    config.congestion_control = "rccc";
    ScriptedPair pair(ScriptedNic::usual(), config);
    pair.receive();
    pair.run();
    pair.send(size);
    pair.messenger(0).post_submitted_sends(pair.now);
    pair.messenger(0).post_control_writes(pair.now);
    EXPECT_EQ(pair.nic[0].count(false), size > 1024 ? 1U : 0U) << size;
    pair.turn(0);
    EXPECT_EQ(pair.nic[0].count(false), 1U);
  }
}

TEST(MessengerTurns, FinishReceivesReportsAnArrivedMessageOnce) {
  ScriptedPair pair;
  pair.receive();
  const auto& second = pair.receive();
  pair.run();
  pair.send(100);
  pair.turn(0);
  EXPECT_FALSE(pair.messenger(1).finish_receives(pair.now)) << "the message is in flight";
  pair.nic[0].deliver(pair.nic[1]);
  EXPECT_TRUE(pair.messenger(1).finish_receives(pair.now));
  EXPECT_FALSE(pair.messenger(1).finish_receives(pair.now));
  EXPECT_EQ(second.state(), State::kPending);
}

// --- memory that the peer writes ---

TEST(MessengerTurns, ControlWordsAreReadOnceTheNicHasCountedAWrite) {
  for (const bool counts : {true, false}) {
    NicCaps caps = ScriptedNic::usual();
    caps.counts_silent_packets = counts;
    ScriptedPair pair(caps);
    pair.nic[0].counts_silent = false;
    pair.send(100);
    pair.turn(0);
    pair.receive();
    pair.turn(1);
    pair.nic[1].deliver(pair.nic[0]);
    pair.turn(0);
    EXPECT_EQ(pair.nic[0].count(true), counts ? 0U : 1U);
    ++pair.nic[0].counted.silent_packets_received;
    pair.turn(0);
    EXPECT_EQ(pair.nic[0].count(true), 1U);
  }
}

// The NIC's control writes do not wake a sleeping engine.
class MessengerWaiting : public testing::Test {
 protected:
  static NicCaps caps(bool wakes) {
    NicCaps caps = ScriptedNic::usual();
    caps.silent_writes_wake = wakes;
    return caps;
  }
  Duration next_look() {
    pair_.turn(0);
    return pair_.messenger(0).next_deadline() - pair_.now;
  }

  ScriptedPair pair_{caps(false)};
};

TEST_F(MessengerWaiting, ControlWordsAreReadSoonAndThenLessAndLessOften) {
  pair_.send(100);
  EXPECT_EQ(next_look(), Duration::from_us(20));
  pair_.now = pair_.now + Duration::from_us(400);
  EXPECT_EQ(next_look(), Duration::from_us(50)) << "an eighth of the time that it has waited";
  pair_.now = pair_.now + Duration::from_ms(100);
  EXPECT_EQ(next_look(), Duration::from_ms(1)) << "the longest interval";
  pair_.receive();
  pair_.turn(1);
  pair_.nic[1].deliver(pair_.nic[0]);
  EXPECT_EQ(next_look(), Duration::from_us(20)) << "a control write has arrived";
}

TEST_F(MessengerWaiting, NoPollIsDueOnceAMessageIsComplete) {
  pair_.receive();
  pair_.run();
  pair_.send(100);
  pair_.turn(0);
  EXPECT_LE(next_look(), Duration::from_ms(1)) << "a grant may come while the message is in flight";
  pair_.run();
  pair_.turn(0);
  EXPECT_GT(next_look(), Duration::from_ms(1));
  pair_.run_for(Duration::from_ms(20));
  EXPECT_EQ(pair_.messenger(0).next_deadline(), Instant::never());
}

TEST_F(MessengerWaiting, EngineThatWritesWakeNeedNotPoll) {
  ScriptedPair pair(caps(true));
  pair.send(100);
  pair.turn(0);
  EXPECT_GT(pair.messenger(0).next_deadline() - pair.now, Duration::from_ms(1));
}

// --- advertising ---

class MessengerAdvertising : public testing::Test {
 protected:
  // How many CTS slots each control write at the NIC has.
  std::vector<size_t> advertised() {
    std::vector<size_t> slots;
    for (const auto& write : pair_.nic[1].posted) {
      if (!write.data()) slots.push_back(write.request.length / sizeof(CtsSlot));
    }
    return slots;
  }
  void pass(Duration time) { pair_.now = pair_.now + time; }

  ScriptedPair pair_;
};

TEST_F(MessengerAdvertising, BufferIsAdvertisedLateWhileThePeerHasOthers) {
  for (int i = 0; i < 2; ++i) {
    pair_.receive();
    pair_.turn(1);
    EXPECT_THAT(advertised(), testing::ElementsAre(1)) << "the peer has no buffer, or one";
    pair_.nic[1].deliver(pair_.nic[0]);
  }
  pair_.receive();
  pair_.turn(1);
  EXPECT_THAT(advertised(), testing::IsEmpty());
  EXPECT_EQ(pair_.messenger(1).next_deadline() - pair_.now, Duration::from_ms(4));
  pass(Duration::from_us(3999));
  pair_.turn(1);
  EXPECT_THAT(advertised(), testing::IsEmpty());
  pass(Duration::from_us(1));
  pair_.turn(1);
  EXPECT_THAT(advertised(), testing::ElementsAre(1));
}

TEST_F(MessengerAdvertising, WaitingBuffersAreAdvertisedTogether) {
  pair_.receive(pair_.ends, 100, 8);
  pair_.run();
  for (int i = 0; i < 3; ++i) pair_.receive();
  pair_.turn(1);
  EXPECT_THAT(advertised(), testing::IsEmpty());
  pass(Duration::from_us(500));
  pair_.receive(pair_.ends, 100, 8);
  pair_.turn(1);
  EXPECT_THAT(advertised(), testing::ElementsAre(11))
      << "once as many wait as the peer has, they are urgent";
}

TEST_F(MessengerAdvertising, BuffersAreAdvertisedSoonerWithDataToThePeer) {
  const ConnectionPair back =
      connect_messengers(pair_.messenger(1), pair_.messenger(0), 0, pair_.now);
  MessageReceive received;
  MessageSend sent;
  received.set(State::kPending);
  sent.set(State::kPending);
  const auto send_back = [&] {
    const auto region =
        pair_.nic[1].register_memory(pair_.memory[1].data(), 8, Access::kLocalRead).value();
    ASSERT_TRUE(pair_.messenger(1).send(
        back.send, test::pending(sent, {pair_.memory[1].data(), 8, 0, region.key})));
  };
  const auto region =
      pair_.nic[0].register_memory(pair_.memory[0].data(), 8, Access::kRemoteWrite).value();
  for (int i = 0; i < 2; ++i) {
    received.clear();
    received.add(pair_.memory[0].data(), 8, 0, {region.remote_address, region.key});
    ASSERT_TRUE(pair_.messenger(0).receive(back.receive, received, pair_.now));
    pair_.receive();
    pair_.run();
  }
  pair_.receive();
  pair_.turn(1);
  pass(Duration::from_us(100));
  send_back();
  pair_.turn(1);
  EXPECT_EQ(pair_.nic[1].count(true), 1U);
  EXPECT_THAT(advertised(), testing::IsEmpty()) << "the buffer has not waited long enough";
  pass(Duration::from_us(1000));
  pair_.turn(1);
  EXPECT_THAT(advertised(), testing::IsEmpty()) << "no data is sent to the peer now";
  send_back();
  pair_.turn(1);
  EXPECT_EQ(pair_.nic[1].count(true), 2U);
  EXPECT_THAT(advertised(), testing::ElementsAre(1));
}

TEST_F(MessengerAdvertising, SlotsForAFullNicAreTriedAgainAtOnce) {
  pair_.nic[1].room = 0;
  pair_.receive();
  pair_.turn(1);
  EXPECT_LE(pair_.messenger(1).next_deadline(), pair_.now);
  pair_.nic[1].room = 1;
  pair_.turn(1);
  EXPECT_THAT(advertised(), testing::ElementsAre(1));
  EXPECT_GT(pair_.messenger(1).next_deadline(), pair_.now);
}

TEST_F(MessengerAdvertising, SlotsBeyondTheEndOfTheRingFollowAtOnce) {
  for (uint32_t i = 0; i < kCtsSlots - 6; ++i) {
    const auto& received = pair_.receive();
    pair_.send(1);
    pair_.run();
    ASSERT_EQ(received.state(), State::kDone);
  }
  pair_.receive(pair_.ends, 100, 8);
  pair_.turn(1);
  EXPECT_THAT(advertised(), testing::ElementsAre(6));
  EXPECT_LE(pair_.messenger(1).next_deadline(), pair_.now);
  pair_.turn(1);
  EXPECT_THAT(advertised(), testing::ElementsAre(6, 2));
  EXPECT_EQ(pair_.nic[1].posted[1].request.remote % sizeof(CtsSlot), 0U);
  for (int i = 0; i < 8; ++i) pair_.send(1);
  pair_.run();
  EXPECT_EQ(pair_.messenger(1).counters().messages_received, kCtsSlots + 2);
}

// --- words ---

// The NIC reads a word when it sends the write, so a full NIC needs only the newest word.
TEST(MessengerTurns, WordsInFlightOfAFlowAreBounded) {
  MessengerConfig config = ScriptedPair::fixed();
  config.congestion_control = "rccc";  // a word for every few packets
  config.line_rate = Rate::from_gbps(800);
  config.base_rtt = Duration::from_us(20);
  ScriptedPair pair(ScriptedNic::usual(), config);
  for (int i = 0; i < 16; ++i) pair.receive();
  pair.run();
  for (int i = 0; i < 16; ++i) pair.send(ScriptedPair::kMemory);
  pair.turn(0);
  pair.nic[0].signals.push_back({.acked = 1024, .sent = 1024});
  for (int i = 0; i < 2; ++i) {  // the sender asks for credit
    pair.turn(0);
    pair.nic[0].deliver(pair.nic[1]);
    pair.turn(1);
  }
  size_t most = 0;
  for (int i = 0; i < 400; ++i) {
    pair.now = pair.now + Duration::from_ns(100);
    pair.turn(1);
    most = std::max(most, pair.nic[1].count(false));
  }
  EXPECT_EQ(most, 56U);
  const auto newest = pair.nic[1].posted.back().request.local;
  pair.nic[1].deliver(pair.nic[0]);
  pair.turn(1);
  EXPECT_EQ(pair.nic[1].count(false), 1U) << "the word that has changed since";
  EXPECT_EQ(pair.nic[1].posted.back().request.local, newest)
      << "the NIC reads the word when it sends the write";
}

TEST(MessengerTurns, WordWithoutRoomAtTheNicIsPostedAtTheNextPoll) {
  MessengerConfig config = ScriptedPair::fixed();
  config.congestion_control = "rccc";
  ScriptedPair pair(ScriptedNic::usual(), config);
  pair.receive();
  pair.run();
  pair.send(100);
  pair.nic[0].room = 1;
  pair.turn(0);
  EXPECT_EQ(pair.nic[0].count(false), 0U) << "the data write took the room";
  pair.nic[0].room = 1;
  pair.turn(0);
  EXPECT_EQ(pair.nic[0].count(false), 1U);
}

// After small messages the receiver advertises late, unless the sender asks for slots.
TEST(MessengerTurns, SlotsAreAskedForOnceUnlessTheNicHadNoRoom) {
  MessengerConfig config = ScriptedPair::fixed();
  config.eager = 1000;
  ScriptedPair pair(ScriptedNic::usual(), config);
  pair.send(10);
  pair.receive();
  pair.run();
  pair.send(5000);
  pair.nic[0].room = 0;
  pair.turn(0);
  EXPECT_EQ(pair.nic[0].count(false), 0U);
  pair.nic[0].room = 10;
  pair.turn(0);
  EXPECT_EQ(pair.nic[0].count(false), 1U);
  pair.turn(0);
  EXPECT_EQ(pair.nic[0].count(false), 1U);
  const auto& received = pair.receive();
  pair.run();
  EXPECT_EQ(received.state(), State::kDone);
}

}  // namespace
}  // namespace pacecar::test::turns_test
