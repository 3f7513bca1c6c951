// Messenger: the calls that a bonded connection makes on its lanes. Two simulated hosts.
#include <gtest/gtest.h>

#include <deque>

#include "tests/support/pending.h"
#include "tests/support/sim_host.h"

namespace pacecar::test::lanes_test {
namespace {

using State = MessageRequest::State;

constexpr Bytes kBytes = 3000;
const LaneNote kNote{
    .epoch = 5, .kind = 2, .lanes = 3, .next = 77, .done = {1, 2, 3, 4}, .number = 9};

class MessengerLanesTest : public testing::Test {
 protected:
  MessengerLanesTest() {
    for (size_t port = 0; port < 2; ++port) {
      hosts_.push_back(std::make_unique<SimHost>(network_, port, port));
    }
    connect();
    from_region_ =
        hosts_[0]->nic().register_memory(memory_.data(), kBytes, Access::kLocalRead).value();
    to_region_ =
        hosts_[1]->nic().register_memory(memory_.data(), kBytes, Access::kRemoteWrite).value();
  }
  void connect() {
    const auto offered =
        sender()
            .open_send(SimHost::identity_of(1), network_.now(), 0, Messenger::Role::kLane)
            .value();
    const auto answered = receiver().open_receive(offered.offer, network_.now()).value();
    PACECAR_CHECK(sender().finish_send(offered.connection, answered.answer, network_.now()));
    ends_ = {offered.connection, answered.connection};
  }
  Messenger& sender() { return hosts_[0]->messenger(); }
  Messenger& receiver() { return hosts_[1]->messenger(); }
  MessageSend& send() {
    MessageSend& request = sends_.emplace_back();
    EXPECT_TRUE(sender().send(
        ends_.send, test::pending(request, {memory_.data(), kBytes, 0, from_region_.key})));
    return request;
  }
  MessageReceive& receive() {
    MessageReceive& request = receives_.emplace_back();
    test::pending(request).add(memory_.data(), kBytes, 0,
                               {to_region_.remote_address, to_region_.key});
    EXPECT_TRUE(receiver().receive(ends_.receive, request, network_.now()));
    return request;
  }
  void run_for(Duration time) {
    run(network_, hosts_, network_.now() + time, [] { return false; });
  }
  void transfer() {
    receive();
    const auto& request = send();
    run_for(Duration::from_ms(1));
    ASSERT_EQ(request.state(), State::kDone);
  }

  SimStar network_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  ConnectionPair ends_;
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(kBytes);
  MemoryRegion from_region_;
  MemoryRegion to_region_;
  std::deque<MessageSend> sends_;
  std::deque<MessageReceive> receives_;
};

TEST_F(MessengerLanesTest, NoteToTheReceiverHasTheNumberOfArrivedWrites) {
  EXPECT_EQ(read_note(receiver().lanes(Direction::kReceive).peer_note(ends_.receive))->number, 0U)
      << "none yet";
  transfer();
  EXPECT_TRUE(sender().lanes(Direction::kSend).write_note(ends_.send, kNote));
  run_for(Duration::from_ms(1));
  const auto note = read_note(receiver().lanes(Direction::kReceive).peer_note(ends_.receive));
  ASSERT_TRUE(note);
  EXPECT_EQ(note->number, kNote.number);
  EXPECT_EQ(note->epoch, kNote.epoch);
  EXPECT_EQ(note->done[3], 4U);
  EXPECT_EQ(note->next, 1U) << "one write has arrived";
}

TEST_F(MessengerLanesTest, NoteToTheSenderArrivesUnchanged) {
  EXPECT_TRUE(receiver().lanes(Direction::kReceive).write_note(ends_.receive, kNote));
  run_for(Duration::from_ms(1));
  const auto note = read_note(sender().lanes(Direction::kSend).peer_note(ends_.send));
  ASSERT_TRUE(note);
  EXPECT_EQ(note->number, kNote.number);
  EXPECT_EQ(note->next, kNote.next);
}

TEST_F(MessengerLanesTest, AcknowledgedNoteIsASignOfLifeAtTheWritingEnd) {
  const uint64_t sending = sender().lanes(Direction::kSend).lane(ends_.send).life;
  const uint64_t receiving = receiver().lanes(Direction::kReceive).lane(ends_.receive).life;
  sender().lanes(Direction::kSend).write_note(ends_.send, kNote);
  run_for(Duration::from_ms(1));
  EXPECT_EQ(sender().lanes(Direction::kSend).lane(ends_.send).life, sending + 1);
  EXPECT_EQ(receiver().lanes(Direction::kReceive).lane(ends_.receive).life, receiving);
  receiver().lanes(Direction::kReceive).write_note(ends_.receive, kNote);
  run_for(Duration::from_ms(1));
  EXPECT_EQ(sender().lanes(Direction::kSend).lane(ends_.send).life, sending + 1);
  EXPECT_EQ(receiver().lanes(Direction::kReceive).lane(ends_.receive).life, receiving + 1);
}

TEST_F(MessengerLanesTest, TransferIsASignOfLifeAtBothEnds) {
  const uint64_t sending = sender().lanes(Direction::kSend).lane(ends_.send).life;
  const uint64_t receiving = receiver().lanes(Direction::kReceive).lane(ends_.receive).life;
  transfer();
  EXPECT_GT(sender().lanes(Direction::kSend).lane(ends_.send).life, sending);
  EXPECT_GT(receiver().lanes(Direction::kReceive).lane(ends_.receive).life, receiving);
  EXPECT_EQ(sender().lanes(Direction::kSend).lane(ends_.send).writes, 0U);
  EXPECT_EQ(receiver().lanes(Direction::kReceive).lane(ends_.receive).writes, 0U);
}

TEST_F(MessengerLanesTest, HeldSendsWaitUntilTheyAreReleased) {
  receive();
  run_for(Duration::from_ms(1));
  sender().hold_sends(ends_.send, true);
  const auto& request = send();
  run_for(Duration::from_ms(1));
  EXPECT_EQ(request.state(), State::kPending);
  EXPECT_EQ(sender().counters().bytes_sent, 0U);
  sender().hold_sends(ends_.send, false);
  run_for(Duration::from_ms(1));
  EXPECT_EQ(request.state(), State::kDone);
}

TEST_F(MessengerLanesTest, RenewedEndsContinueAtTheNextSlot) {
  const auto& forgotten = receive();
  run_for(Duration::from_ms(1));
  sender().hold_sends(ends_.send, true);
  const auto& unsent = send();
  receiver().renew_receives(ends_.receive, network_.now());
  EXPECT_EQ(receiver().receives(ends_.receive).posted_slots(), 1U);
  EXPECT_EQ(receiver().receives(ends_.receive).posted_bytes(), 0U);
  sender().renew_sends(ends_.send, 1);
  sender().hold_sends(ends_.send, false);
  run_for(Duration::from_ms(1));
  EXPECT_EQ(forgotten.state(), State::kPending);
  EXPECT_EQ(unsent.state(), State::kPending);
  transfer();
  EXPECT_EQ(receiver().receives(ends_.receive).completed_slots(), 2U);
  EXPECT_EQ(sender().counters().messages_sent, 1U);
}

TEST_F(MessengerLanesTest, ClosingReceiverReportsCompletedMessages) {
  transfer();
  EXPECT_FALSE(sender().lanes(Direction::kSend).lane(ends_.send).closed);
  receiver().close_receive(ends_.receive, 123);
  run_for(Duration::from_ms(1));
  EXPECT_TRUE(sender().lanes(Direction::kSend).lane(ends_.send).closed);
  EXPECT_EQ(sender().completed_by_peer(ends_.send), 123U);
}

TEST_F(MessengerLanesTest, EveryAcknowledgedWriteIsASignOfLife) {
  uint64_t before = sender().lanes(Direction::kSend).lane(ends_.send).life;
  for (int i = 0; i < 3; ++i) {
    transfer();
    const uint64_t life = sender().lanes(Direction::kSend).lane(ends_.send).life;
    EXPECT_GT(life, before);
    before = life;
  }
}

TEST_F(MessengerLanesTest, BrokenLaneFailsItsRequests) {
  const auto& sending = send();
  const auto& receiving = receive();
  sender().break_flow(Direction::kSend, ends_.send);
  receiver().break_flow(Direction::kReceive, ends_.receive);
  EXPECT_EQ(sending.state(), State::kFailed);
  EXPECT_EQ(sending.failure, MessageFailure::kPeerSilent);
  EXPECT_EQ(receiving.state(), State::kFailed);
  EXPECT_EQ(sender().lanes(Direction::kSend).lane(ends_.send).failure, MessageFailure::kPeerSilent);
  EXPECT_EQ(receiver().lanes(Direction::kReceive).lane(ends_.receive).failure,
            MessageFailure::kPeerSilent);
  EXPECT_FALSE(sender().lanes(Direction::kSend).write_note(ends_.send, kNote));
  EXPECT_FALSE(receiver().lanes(Direction::kReceive).write_note(ends_.receive, kNote));
}

// The source of the note is in the end's memory, and its completion is counted for the end.
TEST_F(MessengerLanesTest, ClosedEndKeepsItsPlaceWhileANoteIsInFlight) {
  for (const bool sending : {true, false}) {
    SCOPED_TRACE(sending ? "sender" : "receiver");
    sender().close_send(ends_.send, network_.now());
    receiver().close_receive(ends_.receive);
    run_for(Duration::from_ms(1));  // both ends could be released at the next poll
    network_.fabric().set_faults({.loss = 1});
    ASSERT_TRUE(sending ? sender().lanes(Direction::kSend).write_note(ends_.send, kNote)
                        : receiver().lanes(Direction::kReceive).write_note(ends_.receive, kNote));
    run_for(Duration::from_ms(50));
    EXPECT_EQ(sender().releasing_sends(), sending);
    EXPECT_EQ(receiver().releasing_receives(), !sending);
    network_.fabric().set_faults({});
    run_for(Duration::from_s(1));
    EXPECT_FALSE(sender().releasing_sends());
    EXPECT_FALSE(receiver().releasing_receives());
    connect();
  }
}

TEST_F(MessengerLanesTest, ClosedEndKeepsItsPlaceUntilThePeersCloseWord) {
  transfer();
  EXPECT_FALSE(sender().releasing_sends());
  EXPECT_FALSE(receiver().releasing_receives());
  sender().close_send(ends_.send, network_.now());
  EXPECT_TRUE(sender().releasing_sends());
  run_for(Duration::from_ms(1));
  EXPECT_TRUE(receiver().lanes(Direction::kReceive).lane(ends_.receive).closed);
  EXPECT_FALSE(receiver().releasing_receives()) << "the receiver has not closed its end";
  receiver().close_receive(ends_.receive);
  EXPECT_TRUE(receiver().releasing_receives());
  run_for(Duration::from_s(1));
  EXPECT_FALSE(sender().releasing_sends());
  EXPECT_FALSE(receiver().releasing_receives());
}

}  // namespace
}  // namespace pacecar::test::lanes_test
