// Messenger: eager messages, sent before their buffers are known. The property test checks that
// each message fills its buffer.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <span>

#include "tests/support/pending.h"
#include "tests/support/sim_host.h"

namespace pacecar::test::eager_test {
namespace {

using State = MessageRequest::State;

constexpr Bytes kEager = 1000;
constexpr Bytes kLarge = 20'000;

class MessengerEagerTest : public testing::Test {
 protected:
  explicit MessengerEagerTest(Rate rate_max = Rate()) {
    for (size_t port = 0; port < 2; ++port) {
      hosts_.push_back(std::make_unique<SimHost>(
          network_, port, port, SimHostConfig{.rate_max = rate_max, .eager = kEager}));
    }
    ends_ = connect(*hosts_[0], *hosts_[1], 1, network_.now());
    from_region_ =
        hosts_[0]->nic().register_memory(from_.data(), from_.size(), Access::kLocalRead).value();
    to_region_ =
        hosts_[1]->nic().register_memory(to_.data(), to_.size(), Access::kRemoteWrite).value();
  }

  Messenger& messenger(size_t port) { return hosts_[port]->messenger(); }
  void run_for(Duration time) {
    run(network_, hosts_, network_.now() + time, [] { return false; });
  }
  // Returns the time until the request is done.
  Duration run_until_done(const MessageRequest& request) {
    const Instant begin = network_.now();
    EXPECT_TRUE(run(network_, hosts_, begin + Duration::from_s(1),
                    [&] { return request.state() != State::kPending; }));
    return network_.now() - begin;
  }
  MessageSend& send(Bytes size, int32_t tag = 0) {
    MessageSend& request = sends_.emplace_back();
    EXPECT_TRUE(messenger(0).send(
        ends_.send, test::pending(request, {from_.data(), size, tag, from_region_.key})));
    return request;
  }
  MessageReceive& receive(Bytes size = kLarge, int32_t tag = 0) {
    return receive_group(1, size, tag);
  }
  // With tags from `tag` on.
  MessageReceive& receive_group(uint32_t count, Bytes size, int32_t tag = 0) {
    MessageReceive& request = test::pending(receives_.emplace_back());
    for (uint32_t i = 0; i < count; ++i) {
      request.add(to_.data(), size, tag++, remote_address_of(to_region_, to_.data()));
    }
    EXPECT_TRUE(messenger(1).receive(ends_.receive, request, network_.now()));
    return request;
  }
  uint64_t advertisements() const { return hosts_[0]->nic().counters().silent_packets_received; }

  SimStar network_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  ConnectionPair ends_;
  std::vector<uint8_t> from_ = std::vector<uint8_t>(kLarge, 7);
  std::vector<uint8_t> to_ = std::vector<uint8_t>(kLarge);
  MemoryRegion from_region_;
  MemoryRegion to_region_;
  std::deque<MessageSend> sends_;
  std::deque<MessageReceive> receives_;
};

TEST_F(MessengerEagerTest, SmallSendCompletesBeforeItsBufferIsPosted) {
  auto& sent = send(kEager);
  run_for(Duration::from_ms(1));
  EXPECT_EQ(sent.state(), State::kDone);
  EXPECT_EQ(sent.sizes[0], kEager);
  std::ranges::fill(from_, uint8_t{9});  // the buffer is the application's again
  auto& received = receive();
  EXPECT_EQ(received.state(), State::kDone) << "the message had arrived";
  EXPECT_EQ(received.sizes[0], kEager);
  EXPECT_EQ(std::count(to_.begin(), to_.end(), 7), static_cast<ptrdiff_t>(kEager));
  EXPECT_EQ(messenger(1).counters().bytes_received, kEager);
}

TEST_F(MessengerEagerTest, LargerMessageWaitsForItsBuffer) {
  auto& sent = send(kEager + 1);
  auto& behind = send(1);  // does not overtake the larger message
  run_for(Duration::from_ms(1));
  EXPECT_EQ(sent.state(), State::kPending);
  EXPECT_EQ(behind.state(), State::kPending);
  receive();
  run_until_done(sent);
  EXPECT_EQ(sent.state(), State::kDone);
  EXPECT_EQ(behind.state(), State::kDone);
}

TEST_F(MessengerEagerTest, MessagesBeyondTheCellsWaitForBuffers) {
  for (uint32_t i = 0; i < EagerCells::kTinyCells + 3; ++i) send(600);  // a cell holds one
  run_for(Duration::from_ms(1));
  const auto done = [](const MessageRequest& request) { return request.state() == State::kDone; };
  EXPECT_EQ(std::ranges::count_if(sends_, done), EagerCells::kTinyCells);
  for (uint32_t i = 0; i < EagerCells::kTinyCells + 3; ++i) receive();
  run_until_done(receives_.back());
  EXPECT_TRUE(std::ranges::all_of(sends_, done));
  EXPECT_TRUE(std::ranges::all_of(receives_, done));
}

TEST_F(MessengerEagerTest, ShortMessagesSentTogetherShareAWrite) {
  constexpr uint32_t kMessages = 2 * EagerCells::kMessages;
  const auto packets = [&] { return hosts_[0]->nic().counters().data_packets_sent; };
  receive();
  run_for(Duration::from_ms(2));  // one buffer is known
  const uint64_t before = packets();
  for (uint32_t i = 0; i < kMessages; ++i) {
    std::ranges::fill(from_, static_cast<uint8_t>(i));
    send(40);
    if (i > 0) receive();
    if (i % 16 == 15) run_for(Duration::from_ms(1));
  }
  const auto done = [](const MessageRequest& request) {
    return request.state() == State::kDone && request.sizes[0] == 40;
  };
  EXPECT_EQ(std::ranges::count_if(sends_, done), kMessages);
  EXPECT_EQ(std::ranges::count_if(receives_, done), kMessages);
  EXPECT_LT(packets() - before, kMessages / 4);
  EXPECT_EQ(messenger(0).counters().messages_sent, kMessages);
  EXPECT_EQ(messenger(1).counters().messages_received, kMessages);
  EXPECT_EQ(messenger(1).counters().bytes_received, 40 * kMessages);
}

// The last buffers may be posted before the peer has read the slots that they reuse. Then only the
// peer's messages show when these buffers can be advertised.
TEST_F(MessengerEagerTest, LastBuffersOfAStreamAreAdvertised) {
  Prng prng(1);
  for (int round = 0; round < 40; ++round) {
    const uint32_t messages = kMaxGroup * (40 + static_cast<uint32_t>(prng.below(80)));
    const auto step = Duration::from_ns(100 + static_cast<int64_t>(prng.below(5000)));
    const Instant deadline = network_.now() + Duration::from_ms(200);
    std::deque<MessageRequest*> receives;
    std::deque<MessageRequest*> sends;
    uint32_t posted = 0;
    uint32_t sent = 0;
    const auto drop_done = [](std::deque<MessageRequest*>& requests) {
      while (!requests.empty() && requests.front()->state() == State::kDone) requests.pop_front();
    };
    while (network_.now() < deadline &&
           (posted < messages || !(receives.empty() && sends.empty()))) {
      for (; posted < messages && receives.size() < kMaxReceives; posted += kMaxGroup) {
        receives.push_back(&receive_group(kMaxGroup, 100));
      }
      for (; sent < messages && sends.size() < kMaxSends; ++sent) {
        sends.push_back(&send(100, static_cast<int32_t>(sent % kMaxGroup)));
      }
      run_for(step);
      drop_done(receives);
      drop_done(sends);
    }
    ASSERT_TRUE(receives.empty() && sends.empty())
        << "round " << round << ": " << receives.size() << " receives, " << sends.size()
        << " sends are left";
  }
}

// Without eager messages, buffers posted one at a time would each take a control write.
TEST_F(MessengerEagerTest, BuffersAfterSmallMessagesAreAdvertisedTogether) {
  constexpr int kMessages = 100;
  send(10);
  run_until_done(receive());
  const uint64_t before = advertisements();
  for (int i = 0; i < kMessages; ++i) {
    auto& received = receive();
    run_for(Duration::from_us(1));
    send(10);
    run_until_done(received);
  }
  EXPECT_LE(advertisements() - before, kMessages / 4);
}

// After small messages the receiver advertises late, unless the sender asks for buffers.
TEST_F(MessengerEagerTest, LargeMessageAfterSmallOnesIsNotDelayed) {
  send(10);
  run_until_done(receive());
  auto& posted = receive();
  run_for(Duration::from_us(50));
  send(kLarge);
  EXPECT_LT(run_until_done(posted), Duration::from_us(100));
  EXPECT_EQ(posted.sizes[0], kLarge);
}

TEST_F(MessengerEagerTest, MessageLongerThanItsBufferFailsTheReceive) {
  auto& sent = send(kEager);
  run_for(Duration::from_ms(1));
  auto& too_small = receive(kEager - 1);
  EXPECT_EQ(sent.state(), State::kDone);
  EXPECT_EQ(too_small.state(), State::kFailed);
  EXPECT_EQ(too_small.failure, MessageFailure::kTooLong);
  EXPECT_EQ(std::count(to_.begin(), to_.end(), 7), 0);
  send(5);
  auto& next = receive();
  run_until_done(next);
  EXPECT_EQ(next.state(), State::kDone);
}

TEST_F(MessengerEagerTest, CompletedSendsArriveAfterTheSenderHasClosed) {
  for (int i = 0; i < 3; ++i) send(100);
  run(network_, hosts_, network_.now() + Duration::from_s(1),
      [&] { return sends_[2].state() == State::kDone; });
  messenger(0).close_send(ends_.send, network_.now());
  run_for(Duration::from_ms(20));
  EXPECT_TRUE(messenger(0).drained());
  for (int i = 0; i < 3; ++i) {
    auto& received = receive();
    EXPECT_EQ(received.state(), State::kDone);
    EXPECT_EQ(received.sizes[0], 100U);
  }
  auto& more = receive();
  run_until_done(more);
  EXPECT_EQ(more.state(), State::kFailed);
  EXPECT_EQ(more.failure, MessageFailure::kPeerClosed);
  messenger(1).close_receive(ends_.receive);
  run_for(Duration::from_ms(20));
  EXPECT_FALSE(messenger(0).releasing_sends());
}

// The rate is low: a message takes longer than the close word.
class SlowMessengerEagerTest : public MessengerEagerTest {
 protected:
  SlowMessengerEagerTest() : MessengerEagerTest(Rate::from_bps(1'000'000)) {}
};

TEST_F(SlowMessengerEagerTest, CompletedSendsArriveBeforeTheCloseWord) {
  for (uint32_t i = 0; i < EagerCells::kTinyCells; ++i) receive();
  run_for(Duration::from_ms(1));
  for (uint32_t i = 0; i < EagerCells::kTinyCells; ++i) send(kEager);
  EXPECT_LT(run_until_done(sends_.back()), Duration::from_ms(1));
  EXPECT_EQ(receives_.back().state(), State::kPending) << "the message is in flight";
  messenger(0).close_send(ends_.send, network_.now());
  EXPECT_FALSE(messenger(0).drained());
  run_until_done(receives_.back());
  for (uint32_t i = 0; i < EagerCells::kTinyCells; ++i)
    EXPECT_EQ(receives_[i].state(), State::kDone) << i;
  run_for(Duration::from_ms(20));
  EXPECT_TRUE(messenger(0).drained());
}

// The receiver reads the close word before it posts, because another connection keeps it polling.
TEST_F(MessengerEagerTest, ReceiverThatKnowsOfTheCloseStillGetsEarlierMessages) {
  const ConnectionPair busy = connect(*hosts_[0], *hosts_[1], 1, network_.now());
  MessageReceive& waiting = test::pending(receives_.emplace_back());
  waiting.add(to_.data(), 1, 0, remote_address_of(to_region_, to_.data()));
  ASSERT_TRUE(messenger(1).receive(busy.receive, waiting, network_.now()));
  send(100, 4);
  run_until_done(send(100, 5));
  messenger(0).close_send(ends_.send, network_.now());
  run_for(Duration::from_ms(20));
  EXPECT_EQ(receive(kLarge, 5).state(), State::kDone);
  EXPECT_EQ(receive(kLarge, 5).failure, MessageFailure::kPeerClosed);
  EXPECT_EQ(receive(kLarge, 4).failure, MessageFailure::kPeerClosed)
      << "behind a receive that failed";
}

// Messages of a peer that was killed are already in the receiver's memory.
TEST_F(MessengerEagerTest, MessagesThatArrivedBeforeTheFlowBrokeAreReceived) {
  run_until_done(send(100, 4));
  run_for(Duration::from_ms(1));
  messenger(1).break_flow(Direction::kReceive, ends_.receive);
  EXPECT_EQ(receive(kLarge, 4).state(), State::kDone);
  EXPECT_EQ(receive(kLarge, 5).failure, MessageFailure::kPeerSilent);
}

// A message waits that matches none of the receives, and each receive fails at once.
TEST_F(MessengerEagerTest, ReceivesBeyondTheMaximumFailAfterTheClose) {
  run_until_done(send(100, 4));
  messenger(0).close_send(ends_.send, network_.now());
  run_for(Duration::from_ms(20));
  for (uint32_t i = 0; i < 2 * kMaxReceives; ++i) {
    EXPECT_EQ(receive(kLarge, 5).failure, MessageFailure::kPeerClosed);
  }
}

TEST_F(MessengerEagerTest, LanesSendNoEagerMessages) {
  const auto offered =
      messenger(0)
          .open_send(SimHost::identity_of(1), network_.now(), 1, Messenger::Role::kLane)
          .value();
  const auto answered = messenger(1).open_receive(offered.offer, network_.now()).value();
  ASSERT_TRUE(messenger(0).finish_send(offered.connection, answered.answer, network_.now()));
  MessageSend& request = sends_.emplace_back();
  ASSERT_TRUE(messenger(0).send(offered.connection,
                                test::pending(request, {from_.data(), 1, 0, from_region_.key})));
  run_for(Duration::from_ms(1));
  EXPECT_EQ(request.state(), State::kPending);
}

// An eager message that waits at the receiver is complete at the sender.
TEST_F(MessengerEagerTest, EagerMessageWithoutAReceiveIsNoStall) {
  send(10);
  run_for(Duration::from_s(20));
  EXPECT_FALSE(messenger(0).lanes(Direction::kSend).stall(ends_.send));
}

}  // namespace
}  // namespace pacecar::test::eager_test
