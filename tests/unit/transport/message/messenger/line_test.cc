// Messenger: how it notices that the process of a peer has ended, by the end of the line over which
// their connection was made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scripted_nic.h"

namespace pacecar::test::line_test {
namespace {

using State = MessageRequest::State;

struct Line final : PeerLine {
  bool over = false;
  bool ended() override { return over; }
};

// A receiver that waits for a message, and the line to its sender.
struct Waiting {
  ScriptedPair pair;
  std::shared_ptr<Line> line = std::make_shared<Line>();
  MessageRequest& received = pair.receive();

  explicit Waiting(const NicCaps& caps = ScriptedNic::usual()) : pair(caps) {
    pair.messenger(1).lanes(Direction::kReceive).add_line(pair.ends.receive, line);
    pair.run_for(Duration::from_ms(100));
  }
  // Nothing that it writes is acknowledged.
  void wait_in_vain(Duration time) {
    for (const Instant end = pair.now + time; pair.now < end;
         pair.now = pair.now + Duration::from_ms(5)) {
      pair.turn(1);
    }
  }
};

TEST(MessengerLine, PeerThatHasEndedIsNoticedWithinASecond) {
  Waiting waiting;
  waiting.line->over = true;
  waiting.wait_in_vain(Duration::from_ms(200));
  EXPECT_EQ(waiting.received.state(), State::kPending) << "it may be slow";
  waiting.wait_in_vain(Duration::from_ms(700));
  EXPECT_EQ(waiting.received.state(), State::kFailed);
  EXPECT_EQ(waiting.received.failure, MessageFailure::kPeerSilent);
  EXPECT_THAT(waiting.pair.messenger(1).lanes(Direction::kReceive).fault(waiting.pair.ends.receive),
              testing::HasSubstr("its process has ended"));
}

TEST(MessengerLine, SenderNoticesIt) {
  ScriptedPair pair;
  const auto line = std::make_shared<Line>();
  pair.messenger(0).lanes(Direction::kSend).add_line(pair.ends.send, line);
  const auto& sent = pair.send(100);
  line->over = true;
  for (int i = 0; i < 200; ++i, pair.now = pair.now + Duration::from_ms(5)) pair.turn(0);
  EXPECT_EQ(sent.state(), State::kFailed);
}

TEST(MessengerLine, PeerThatOnlyClosesItsLineStays) {
  Waiting waiting;
  waiting.line->over = true;
  waiting.pair.run_for(Duration::from_s(3));
  EXPECT_EQ(waiting.received.state(), State::kPending);
  waiting.pair.send(100);
  waiting.pair.run();
  EXPECT_EQ(waiting.received.state(), State::kDone);
}

TEST(MessengerLine, AcknowledgementsFromBeforeTheEndProveNothing) {
  Waiting waiting;
  waiting.line->over = true;
  waiting.wait_in_vain(Duration::from_ms(10));
  ASSERT_EQ(waiting.pair.nic[1].posted.size(), 1U) << "the question";
  waiting.pair.nic[1].acknowledge_one();
  waiting.wait_in_vain(Duration::from_ms(800));
  EXPECT_EQ(waiting.received.state(), State::kFailed);
}

// An RDMA NIC answers until the kernel has freed the memory of the process.
TEST(MessengerLine, QueuePairThatAnswersAfterTheEndProvesNothing) {
  Waiting waiting;
  waiting.line->over = true;
  waiting.pair.run_for(Duration::from_ms(300));
  waiting.wait_in_vain(Duration::from_s(2));
  EXPECT_EQ(waiting.received.state(), State::kPending) << "a peer that lives may be silent";
  waiting.wait_in_vain(Duration::from_s(1));
  EXPECT_EQ(waiting.received.state(), State::kFailed);
}

TEST(MessengerLine, AnswerOfASoftwareNicIsItsProcess) {
  NicCaps caps = ScriptedNic::usual();
  caps.software = true;
  Waiting waiting(caps);
  waiting.line->over = true;
  waiting.pair.run_for(Duration::from_ms(300));
  waiting.wait_in_vain(Duration::from_s(5));
  EXPECT_EQ(waiting.received.state(), State::kPending);
}

TEST(MessengerLine, EndOfALaterLineIsNoticedAsSoon) {
  Waiting waiting;
  waiting.line->over = true;
  waiting.pair.run_for(Duration::from_ms(4500));  // the next questions are seconds away
  const auto later = std::make_shared<Line>();
  waiting.pair.messenger(1).lanes(Direction::kReceive).add_line(waiting.pair.ends.receive, later);
  later->over = true;
  waiting.wait_in_vain(Duration::from_ms(500));
  EXPECT_EQ(waiting.received.state(), State::kFailed);
}

TEST(MessengerLine, ReceiverTrustsTheLineThatIsLeft) {
  Waiting waiting;
  const auto other = std::make_shared<Line>();
  waiting.pair.messenger(1).lanes(Direction::kReceive).add_line(waiting.pair.ends.receive, other);
  waiting.line->over = true;
  waiting.wait_in_vain(Duration::from_s(1));
  EXPECT_EQ(waiting.received.state(), State::kPending);
  other->over = true;
  waiting.wait_in_vain(Duration::from_s(1));
  EXPECT_EQ(waiting.received.state(), State::kFailed);
}

TEST(MessengerLine, SenderClosesFurtherLines) {
  ScriptedPair pair;
  const auto first = std::make_shared<Line>();
  for (size_t kept = 0; kept < PeerWatch::kMostLines; ++kept) {
    pair.messenger(0)
        .lanes(Direction::kSend)
        .add_line(pair.ends.send, kept == 0 ? first : std::make_shared<Line>());
  }
  const auto last = std::make_shared<Line>();
  pair.messenger(0).lanes(Direction::kSend).add_line(pair.connect().send, last);
  EXPECT_EQ(first.use_count(), 2);
  EXPECT_EQ(last.use_count(), 1);
}

TEST(MessengerLine, TimeForWhichThisProcessWasStoppedDoesNotCount) {
  Waiting waiting;
  waiting.line->over = true;
  waiting.wait_in_vain(Duration::from_ms(200));
  waiting.pair.now = waiting.pair.now + Duration::from_s(20);
  waiting.pair.turn(1);
  EXPECT_EQ(waiting.received.state(), State::kPending);
  waiting.pair.run_for(Duration::from_s(1));
  EXPECT_EQ(waiting.received.state(), State::kPending) << "it has answered";
}

TEST(MessengerLine, IdlePeerIsNotAsked) {
  ScriptedPair pair;
  const auto line = std::make_shared<Line>();
  pair.messenger(1).lanes(Direction::kReceive).add_line(pair.ends.receive, line);
  line->over = true;
  for (int i = 0; i < 400; ++i, pair.now = pair.now + Duration::from_ms(5)) pair.turn(1);
  EXPECT_TRUE(pair.nic[1].posted.empty());
}

TEST(MessengerLine, FlowWithoutConnectionsClosesItsLine) {
  ScriptedPair pair;
  const auto line = std::make_shared<Line>();
  pair.messenger(0).lanes(Direction::kSend).add_line(pair.ends.send, line);
  pair.messenger(0).close_send(pair.ends.send, pair.now);
  pair.messenger(1).close_receive(pair.ends.receive);
  pair.run_for(Duration::from_ms(50));
  EXPECT_EQ(line.use_count(), 1);
}

}  // namespace
}  // namespace pacecar::test::line_test
