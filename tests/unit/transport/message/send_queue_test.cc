// SendQueue against a table that the test fills as a receiver would.
#include "transport/message/send_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "tests/support/pending.h"

namespace pacecar::send_queue_test {
namespace {

using State = MessageRequest::State;

constexpr uint32_t kConnection = 5;
constexpr Bytes kWriteBytes = 64 << 10;

uint8_t* pointer(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

class SendQueueTest : public testing::Test {
 protected:
  MessageSend& send(Bytes size, int32_t tag = 0, uint32_t key = 1, Bytes offset = 0) {
    MessageSend& request = requests_.emplace_back();
    EXPECT_TRUE(queue_.post(test::pending(request, {pointer(0x1000), size, tag, key, offset})));
    return request;
  }
  // One receive request with these tags; `count` of its slots arrive (default: all).
  void advertise(const std::vector<int32_t>& tags, size_t count = 8, Bytes size = 1 << 20) {
    for (size_t i = 0; i < tags.size(); ++i) {
      if (i < count) {
        table_->slots[(sequence_ + i) % kCtsSlots] = {
            .address = 0x100000 * (sequence_ + i + 1),
            .size = size,
            .key = 7,
            .tag = tags[i],
            .first_sequence = sequence_ + i + 1,
            .group_size = static_cast<uint16_t>(tags.size()),
            .group_index = static_cast<uint16_t>(i),
            .grant = 1000 + sequence_ + i,
            .sequence = sequence_ + i + 1};
      }
    }
    if (count >= tags.size()) sequence_ += tags.size();
  }
  SendQueue::Match match() {
    return queue_.match(*table_, kWriteBytes, [this](uint64_t word) { grants_.push_back(word); });
  }
  // Posts everything that can be posted; returns the slots, in order.
  std::vector<uint32_t> post_all() {
    std::vector<uint32_t> slots;
    WorkRequest write;
    while (queue_.next_write(kConnection, &write)) {
      queue_.on_posted();
      writes_.push_back(write);
      slots.push_back(Immediate::unpack(write.immediate).slot);
    }
    return slots;
  }
  bool done(size_t write, CompletionStatus status = CompletionStatus::kOk) {
    return queue_.on_write_done(static_cast<uint32_t>(writes_[write].id), status);
  }

  SendQueue queue_;
  std::unique_ptr<SendTable> table_ = std::make_unique<SendTable>();
  std::deque<MessageSend> requests_;
  std::vector<WorkRequest> writes_;
  std::vector<uint64_t> grants_;
  uint64_t sequence_ = 0;
};

TEST_F(SendQueueTest, SendWaitsForABuffer) {
  const auto& request = send(100);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_TRUE(post_all().empty());
  EXPECT_TRUE(queue_.waiting());
  advertise({0});
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_FALSE(queue_.waiting());
  EXPECT_EQ(post_all(), (std::vector<uint32_t>{0}));
  const WorkRequest& write = writes_[0];
  EXPECT_EQ(write.local, pointer(0x1000));
  EXPECT_EQ(write.remote, 0x100000U);
  EXPECT_EQ(write.length, 100U);
  EXPECT_EQ(write.local_key, 1U);
  EXPECT_EQ(write.remote_key, 7U);
  EXPECT_EQ(write.opcode, Opcode::kWriteWithImm);
  EXPECT_TRUE(write.awaited);
  EXPECT_EQ(Immediate::unpack(write.immediate).connection, kConnection);
  EXPECT_EQ(Immediate::unpack(write.immediate).writes, 1U);
  EXPECT_EQ(request.state(), State::kPending);
  EXPECT_TRUE(done(0));
  EXPECT_EQ(request.state(), State::kDone);
  EXPECT_EQ(request.sizes[0], 100U);
  EXPECT_TRUE(queue_.idle());
}

TEST_F(SendQueueTest, WriteOfACopyIsNotAwaited) {
  const EagerCells cells(kMaxEager);
  std::vector<uint8_t> memory(cells.bytes());
  queue_.enable_eager(cells, memory.data(), 9, {.address = 0x5000, .key = 3});
  EXPECT_EQ(send(0).state(), State::kPending);
  advertise({0});
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(requests_[0].state(), State::kDone);
  post_all();
  EXPECT_FALSE(writes_[0].awaited);
}

TEST_F(SendQueueTest, TagsSelectASlotOfTheOldestReceive) {
  send(1, 30);
  send(2, 10);
  send(3, 20);
  advertise({10, 20, 30});
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all(), (std::vector<uint32_t>{2, 0, 1}));
  EXPECT_EQ(grants_, (std::vector<uint64_t>{1000, 1001, 1002}));
}

TEST_F(SendQueueTest, PutCountsAsAWriteOfTheNextMessage) {
  MessageSend& put = requests_.emplace_back();
  const Bytes size = 2 * kWriteBytes + 1;
  EXPECT_TRUE(queue_.post(test::pending(put, {.data = pointer(0x1000),
                                              .size = size,
                                              .key = 1,
                                              .put = true,
                                              .remote = {.address = 0x9000, .key = 8}})));
  send(10);
  send(10);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_TRUE(post_all().empty()) << "the slot of the next message must be known";
  advertise({0});
  advertise({0});
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all(), (std::vector<uint32_t>{0, 0, 0, 0, 1}));
  EXPECT_EQ(writes_[2].remote, 0x9000U + 2 * kWriteBytes);
  EXPECT_EQ(writes_[2].remote_key, 8U);
  EXPECT_EQ(writes_[2].length, 1U);
  for (const size_t i : {0, 1, 2}) {
    EXPECT_EQ(Immediate::unpack(writes_[i].immediate).writes, Immediate::kPut);
  }
  EXPECT_EQ(writes_[3].remote, 0x100000U);
  EXPECT_EQ(Immediate::unpack(writes_[3].immediate).writes, 4U)
      << "one of the message, three of the put";
  EXPECT_EQ(Immediate::unpack(writes_[4].immediate).writes, 1U);
  for (const size_t i : {0, 1, 2}) done(i);
  EXPECT_EQ(put.state(), State::kDone);
  EXPECT_EQ(put.sizes[0], size);
}

TEST_F(SendQueueTest, RefusedPutFails) {
  MessageSend& put = requests_.emplace_back();
  EXPECT_TRUE(
      queue_.post(test::pending(put, {.data = pointer(0x1000), .size = 5, .key = 1, .put = true})));
  advertise({0});
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  post_all();
  done(0, CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(put.state(), State::kFailed);
  EXPECT_EQ(put.failure, MessageFailure::kPeerRefused);
}

TEST_F(SendQueueTest, SendsOfEqualTagKeepTheirOrder) {
  send(1, 5);
  send(2, 5);
  advertise({5, 5});
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all(), (std::vector<uint32_t>{0, 1}));
}

TEST_F(SendQueueTest, LaterReceivesWaitForTheOldest) {
  send(1, 2);
  send(2, 2);
  advertise({1});
  advertise({2});
  advertise({2});
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_TRUE(post_all().empty());  // the oldest receive wants tag 1
  send(3, 1);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all(), (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(writes_[0].length, 3U);
  EXPECT_EQ(writes_[1].length, 1U);  // the skipped sends have kept their order
  EXPECT_EQ(writes_[2].length, 2U);
}

TEST_F(SendQueueTest, SkippedSendsKeepTheirOrder) {
  for (const int32_t tag : {9, 1, 9, 2, 9}) send(static_cast<Bytes>(requests_.size() + 1), tag);
  advertise({2, 1});
  for (int i = 0; i < 3; ++i) advertise({9});
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all().size(), 5U);
  std::vector<Bytes> lengths;
  for (const WorkRequest& write : writes_) lengths.push_back(write.length);
  EXPECT_EQ(lengths, (std::vector<Bytes>{2, 4, 1, 3, 5}));
}

TEST_F(SendQueueTest, ReceiveIsUsedOnceAllItsSlotsHaveArrived) {
  send(1, 1);
  for (size_t count = 0; count < 3; ++count) {
    advertise({1, 2, 3}, count);
    EXPECT_EQ(match(), SendQueue::Match::kOk);
    EXPECT_TRUE(post_all().empty()) << count;
  }
  advertise({1, 2, 3});
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all().size(), 1U);
}

TEST_F(SendQueueTest, MalformedSlotsAreAProtocolError) {
  const std::vector<CtsSlot> bad{
      {.first_sequence = 1, .group_size = 0, .sequence = 1},
      {.first_sequence = 1, .group_size = kMaxGroup + 1, .sequence = 1},
      {.first_sequence = 1, .group_size = 1, .group_index = 1, .sequence = 1},
  };
  for (const CtsSlot& slot : bad) {
    SendQueue queue;
    MessageSend request;
    queue.post(test::pending(request, {pointer(0x1000), 1, 0, 1}));
    table_->slots[0] = slot;
    EXPECT_EQ(queue.match(*table_, kWriteBytes, [](uint64_t) {}), SendQueue::Match::kProtocolError);
  }
  // A receive whose slots disagree about its size.
  send(1);
  advertise({0, 0});
  table_->slots[1].group_size = 3;
  EXPECT_EQ(match(), SendQueue::Match::kProtocolError);
}

TEST_F(SendQueueTest, SlotsOfAnotherTurnOfTheRingAreIgnored) {
  send(1);
  advertise({0});
  table_->slots[0].sequence += kCtsSlots;
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_TRUE(post_all().empty());
}

// Under relaxed ordering either half of a slot may be visible first.
TEST_F(SendQueueTest, HalfASlotIsIgnored) {
  send(1);
  advertise({0, 0});
  for (const uint32_t slot : {0, 1}) {
    for (uint64_t CtsSlot::*half : {&CtsSlot::first_sequence, &CtsSlot::sequence}) {
      table_->slots[slot].*half -= kCtsSlots;
      EXPECT_EQ(match(), SendQueue::Match::kOk);
      EXPECT_TRUE(post_all().empty());
      table_->slots[slot].*half += kCtsSlots;
    }
  }
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all(), (std::vector<uint32_t>{0}));
}

TEST_F(SendQueueTest, ATooLongMessageIsReportedToTheReceiver) {
  const auto& request = send(101);
  const auto& part = send(100, 0, 1, 1);  // of a bond lane
  const auto& next = send(100);
  for (int i = 0; i < 3; ++i) advertise({0}, 8, 100);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all(), (std::vector<uint32_t>{0, 1, 2}));
  for (const size_t write : {0, 1}) {
    EXPECT_EQ(writes_[write].length, 0U);
    EXPECT_EQ(writes_[write].remote, 0x100000U * (write + 1)) << "never beyond the buffer";
    EXPECT_EQ(Immediate::unpack(writes_[write].immediate).writes, Immediate::kTooLong);
    EXPECT_TRUE(done(write));
  }
  for (const auto* failed : {&request, &part}) EXPECT_EQ(failed->failure, MessageFailure::kTooLong);
  EXPECT_TRUE(done(2) && next.state() == State::kDone);
}

TEST_F(SendQueueTest, LongMessageTakesSeveralWrites) {
  constexpr Bytes kSize = 2 * kWriteBytes + 5;
  const auto& request = send(kSize);
  advertise({0}, 8, kSize);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all(), (std::vector<uint32_t>{0, 0, 0}));
  EXPECT_EQ(writes_[1].remote, writes_[0].remote + kWriteBytes);
  EXPECT_EQ(writes_[1].local, writes_[0].local + kWriteBytes);
  EXPECT_EQ(writes_[2].length, 5U);
  EXPECT_EQ(Immediate::unpack(writes_[0].immediate).writes, 0U);
  EXPECT_EQ(Immediate::unpack(writes_[1].immediate).writes, 0U);
  EXPECT_EQ(Immediate::unpack(writes_[2].immediate).writes, 3U);
  EXPECT_EQ(queue_.outstanding(), 3U);
  EXPECT_FALSE(done(0));
  EXPECT_FALSE(done(1));
  EXPECT_TRUE(done(2));
  EXPECT_EQ(request.state(), State::kDone);
  EXPECT_EQ(queue_.outstanding(), 0U);
}

TEST_F(SendQueueTest, WritesGrowToKeepTheirNumberWithinTheLimit) {
  constexpr Bytes kSize = kWriteBytes * Immediate::kMaxWrites + 1;
  send(kSize);
  advertise({0}, 8, kSize);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_LE(post_all().size(), Immediate::kMaxWrites);
  EXPECT_EQ(writes_[0].length, kWriteBytes + 1);
  EXPECT_EQ(writes_.back().remote + writes_.back().length, writes_[0].remote + kSize);
  EXPECT_EQ(Immediate::unpack(writes_.back().immediate).writes, writes_.size());
}

TEST_F(SendQueueTest, FailedWriteEndsALongMessage) {
  const auto& request = send(3 * kWriteBytes);
  advertise({0}, 8, 3 * kWriteBytes);
  match();
  WorkRequest write;
  ASSERT_TRUE(queue_.next_write(kConnection, &write));
  queue_.on_posted();
  EXPECT_FALSE(
      queue_.on_write_done(static_cast<uint32_t>(write.id), CompletionStatus::kRemoteAccessError));
  EXPECT_EQ(post_all().size(), 1U);
  EXPECT_EQ(writes_[0].length, 0U);
  EXPECT_EQ(Immediate::unpack(writes_[0].immediate).writes, Immediate::kAbandoned);
  EXPECT_TRUE(done(0));
  EXPECT_EQ(request.state(), State::kFailed);
  EXPECT_EQ(request.failure, MessageFailure::kPeerRefused);
}

TEST_F(SendQueueTest, SendsThatAClosingPeerReceivedAreDone) {
  auto& first = send(1);
  auto& second = send(2);
  auto& waiting = send(3);
  advertise({0});
  advertise({0});
  match();
  post_all();
  queue_.on_peer_closed(1);
  EXPECT_EQ(first.state(), State::kDone);
  EXPECT_EQ(second.failure, MessageFailure::kPeerClosed);
  EXPECT_EQ(second.state(), State::kFailed);
  EXPECT_EQ(waiting.failure, MessageFailure::kPeerClosed);
  EXPECT_EQ(waiting.state(), State::kFailed);
}

TEST_F(SendQueueTest, ForgottenMemoryFailsItsSends) {
  auto& matched = send(1, 0, 11);
  auto& other = send(2, 0, 22);
  auto& waiting = send(3, 0, 11);
  advertise({0});
  advertise({0});
  match();
  queue_.forget_memory(11);
  EXPECT_EQ(waiting.state(), State::kFailed);
  EXPECT_EQ(waiting.failure, MessageFailure::kMemoryGone);
  // The matched send must still report to the receiver that it is abandoned.
  EXPECT_EQ(post_all(), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(writes_[0].length, 0U);
  EXPECT_EQ(Immediate::unpack(writes_[0].immediate).writes, Immediate::kAbandoned);
  EXPECT_TRUE(done(0));
  EXPECT_EQ(matched.failure, MessageFailure::kMemoryGone);
  EXPECT_TRUE(done(1));
  EXPECT_EQ(other.state(), State::kDone);
  EXPECT_TRUE(queue_.idle());
}

// The later message can still end itself; the earlier one, of which all is posted, cannot.
TEST_F(SendQueueTest, PostedSendWhoseMemoryGoesHasNoEnd) {
  send(1, 0, 11);
  advertise({0});
  match();
  post_all();
  send(2, 0, 11);
  advertise({0});
  match();
  queue_.forget_memory(11);
  EXPECT_TRUE(queue_.gives_up());
  EXPECT_FALSE(queue_.cannot_end());
  EXPECT_TRUE(done(0, CompletionStatus::kMemoryGone));
  EXPECT_TRUE(queue_.cannot_end());
}

// Both puts are of the same message, which the later one ends.
TEST_F(SendQueueTest, PostedPutWhoseMemoryGoesEndsWithALaterOne) {
  const auto post_put = [&] {
    EXPECT_TRUE(queue_.post(test::pending(
        requests_.emplace_back(), {.data = pointer(0x1000), .size = 5, .key = 11, .put = true})));
  };
  advertise({0});
  post_put();
  match();
  post_all();
  post_put();
  match();
  queue_.forget_memory(11);
  EXPECT_TRUE(done(0, CompletionStatus::kMemoryGone));
  EXPECT_TRUE(queue_.gives_up());
  EXPECT_FALSE(queue_.cannot_end());
}

TEST_F(SendQueueTest, ForgottenSendsDoNotBlockLaterOnes) {
  for (const uint32_t key : {11, 22, 11, 33}) send(requests_.size() + 1, 0, key);
  queue_.forget_memory(11);
  for (int i = 0; i < 2; ++i) advertise({0});
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all(), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(writes_[0].length, 2U);
  EXPECT_EQ(writes_[1].length, 4U);
  EXPECT_FALSE(queue_.waiting());
  for (const size_t write : {0, 1}) EXPECT_TRUE(done(write));
  EXPECT_TRUE(queue_.idle());
  EXPECT_EQ(queue_.pending(), 0U);
}

TEST_F(SendQueueTest, FailingFailsEverySendOnce) {
  auto& posted = send(1);
  auto& waiting = send(2);
  advertise({0});
  match();
  post_all();
  queue_.fail(MessageFailure::kPeerSilent);
  EXPECT_EQ(posted.failure, MessageFailure::kPeerSilent);
  EXPECT_EQ(waiting.failure, MessageFailure::kPeerSilent);
  EXPECT_EQ(queue_.outstanding(), 1U);
  posted.set(State::kFree);  // the application has freed the request
  EXPECT_FALSE(done(0));
  EXPECT_EQ(posted.state(), State::kFree);
  EXPECT_EQ(queue_.outstanding(), 0U);
}

TEST_F(SendQueueTest, DroppedRequestsAreNotTouched) {
  auto& request = send(1);
  advertise({0});
  match();
  post_all();
  queue_.drop_requests();
  EXPECT_FALSE(done(0));
  EXPECT_EQ(request.state(), State::kPending);
}

TEST_F(SendQueueTest, PendingSendsAreLimited) {
  for (uint32_t i = 0; i < kMaxSends; ++i) send(1);
  MessageSend next;
  EXPECT_FALSE(queue_.post(test::pending(next, {pointer(0x1000), 1, 0, 1})));
  advertise({0});
  match();
  post_all();
  EXPECT_TRUE(done(0));
  EXPECT_TRUE(queue_.post(next));
}

// Writes may arrive in any order: the write that abandons the message must be the last.
TEST_F(SendQueueTest, FailedMessageIsAbandonedOnceNoWriteIsInFlight) {
  const auto& request = send(10 * kWriteBytes);
  advertise({0});
  match();
  WorkRequest write;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(queue_.next_write(kConnection, &write));
    queue_.on_posted();
    writes_.push_back(write);
  }
  EXPECT_FALSE(queue_.gives_up());
  done(1, CompletionStatus::kRemoteAccessError);
  EXPECT_FALSE(queue_.next_write(kConnection, &write));
  done(2);
  EXPECT_FALSE(queue_.next_write(kConnection, &write));
  done(0);
  EXPECT_TRUE(queue_.gives_up());
  ASSERT_TRUE(queue_.next_write(kConnection, &write));
  EXPECT_EQ(Immediate::unpack(write.immediate).writes, Immediate::kAbandoned);
  EXPECT_EQ(write.length, 0U);
  queue_.on_posted();
  writes_.push_back(write);
  EXPECT_TRUE(done(3));
  EXPECT_EQ(request.failure, MessageFailure::kPeerRefused);
}

}  // namespace
}  // namespace pacecar::send_queue_test
