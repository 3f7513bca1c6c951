// ReceiveQueue alone, and with a SendQueue through their tables.
#include "transport/message/receive_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "tests/support/pending.h"
#include "transport/message/send_queue.h"

namespace pacecar::receive_queue_test {
namespace {

using State = MessageRequest::State;

uint8_t* pointer(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

class ReceiveQueueTest : public testing::Test {
 protected:
  MessageReceive& receive(const std::vector<Bytes>& sizes, uint32_t key = 1) {
    MessageReceive& request = test::pending(requests_.emplace_back());
    for (size_t i = 0; i < sizes.size(); ++i) {
      request.add(pointer(0x1000), sizes[i], static_cast<int32_t>(i), {0x7000, key});
    }
    EXPECT_TRUE(queue_.post(request));
    return request;
  }
  void advertise() {
    for (auto run = queue_.next_run(); run.count > 0; run = queue_.next_run()) {
      queue_.on_run_posted(run.count);
    }
  }
  // A write from a peer that knows every slot that may be advertised.
  ReceiveQueue::Arrival arrive(uint32_t slot, Bytes bytes, uint32_t writes = 1) {
    advertise();
    return queue_.on_write({.connection = 0, .slot = slot, .writes = writes}, bytes, &progress_);
  }

  static constexpr auto kOk = ReceiveQueue::Arrival::kOk;
  static constexpr auto kProtocolError = ReceiveQueue::Arrival::kProtocolError;

  ReceiveQueue queue_;
  std::unique_ptr<ReceiveTable> table_ = std::make_unique<ReceiveTable>();
  std::deque<MessageReceive> requests_;
  ReceiveQueue::Progress progress_;
};

TEST_F(ReceiveQueueTest, MessageCompletesAfterItsPuts) {
  const auto& first = receive({10});
  const auto& second = receive({10});
  EXPECT_EQ(arrive(0, 4, 3), kOk) << "the message arrives before its two puts";
  EXPECT_EQ(arrive(1, 4), kOk);
  EXPECT_EQ(arrive(0, 1000, Immediate::kPut), kOk)
      << "a put goes to a window and may be longer than the buffer";
  EXPECT_EQ(first.state(), State::kPending);
  EXPECT_EQ(arrive(0, 1000, Immediate::kPut), kOk);
  EXPECT_EQ(first.state(), State::kDone);
  EXPECT_EQ(first.sizes[0], 4U);
  EXPECT_EQ(second.state(), State::kDone);
  EXPECT_EQ(arrive(0, 1, Immediate::kPut), kProtocolError) << "a put of a complete message";
}

TEST_F(ReceiveQueueTest, SlotsDescribePostedBuffers) {
  receive({10, 20});
  EXPECT_EQ(queue_.posted_bytes(), 30U);
  queue_.write(queue_.next_run(), 99, *table_);
  const CtsSlot& slot = table_->slots[1];
  EXPECT_EQ(slot.address, 0x7000U) << "the remote address";
  EXPECT_EQ(slot.size, 20U);
  EXPECT_EQ(slot.grant, 99U);
  EXPECT_EQ(slot.key, 1U);
  EXPECT_EQ(slot.tag, 1);
  EXPECT_EQ(slot.group_size, 2U);
  EXPECT_EQ(slot.group_index, 1U);
  EXPECT_EQ(slot.sequence, 2U);
  EXPECT_EQ(queue_.next_run().first, 0U);
  EXPECT_EQ(queue_.next_run().count, 2U);
  queue_.on_run_posted(2);
  EXPECT_EQ(queue_.next_run().count, 0U);
}

TEST_F(ReceiveQueueTest, CompletesInTheOrderOfPosting) {
  auto& first = receive({10, 10});
  auto& second = receive({10});
  EXPECT_EQ(arrive(2, 7), kOk);
  EXPECT_EQ(progress_.finished, 10U);
  EXPECT_EQ(progress_.messages, 1U);
  EXPECT_EQ(second.state(), State::kPending);
  EXPECT_EQ(arrive(1, 0), kOk);
  EXPECT_EQ(first.state(), State::kPending);
  EXPECT_EQ(queue_.completed_slots(), 0U);
  EXPECT_EQ(arrive(0, 10), kOk);
  EXPECT_EQ(first.state(), State::kDone);
  EXPECT_EQ(first.count, 2);
  EXPECT_EQ(first.sizes[0], 10U);
  EXPECT_EQ(first.sizes[1], 0U);
  EXPECT_EQ(second.state(), State::kDone);
  EXPECT_EQ(second.sizes[0], 7U);
  EXPECT_EQ(queue_.completed_slots(), 3U);
  EXPECT_EQ(queue_.posted_bytes(), 0U);
  EXPECT_TRUE(queue_.idle());
}

// The write that carries the number of writes may overtake the others.
TEST_F(ReceiveQueueTest, MessageOfSeveralWritesCompletesAfterAllOfThem) {
  auto& request = receive({100});
  EXPECT_EQ(arrive(0, 20, 3), kOk);
  EXPECT_EQ(arrive(0, 40, 0), kOk);
  EXPECT_EQ(request.state(), State::kPending);
  EXPECT_EQ(arrive(0, 40, 0), kOk);
  EXPECT_EQ(request.state(), State::kDone);
  EXPECT_EQ(request.sizes[0], 100U);
}

TEST_F(ReceiveQueueTest, TooLongMessageFailsOnlyItsReceive) {
  auto& first = receive({10});
  auto& second = receive({10});
  EXPECT_EQ(arrive(0, 0, Immediate::kTooLong), kOk);
  EXPECT_EQ(first.state(), State::kFailed);
  EXPECT_EQ(first.failure, MessageFailure::kTooLong);
  EXPECT_EQ(arrive(1, 10), kOk);
  EXPECT_EQ(second.state(), State::kDone);
}

// The sender may abandon a message after its first writes.
TEST_F(ReceiveQueueTest, AbandonedMessageFailsOnlyItsReceive) {
  auto& first = receive({10});
  auto& second = receive({10});
  EXPECT_EQ(arrive(0, 5, 0), kOk);
  EXPECT_EQ(arrive(0, 0, Immediate::kAbandoned), kOk);
  EXPECT_EQ(first.state(), State::kFailed);
  EXPECT_EQ(first.failure, MessageFailure::kPeerAbandoned);
  EXPECT_EQ(arrive(1, 10), kOk);
  EXPECT_EQ(second.state(), State::kDone);
}

TEST_F(ReceiveQueueTest, InvalidWriteIsAProtocolError) {
  EXPECT_EQ(arrive(0, 1), kProtocolError);  // nothing posted
  receive({10, 10});
  EXPECT_EQ(arrive(2, 1), kProtocolError);   // not this slot
  EXPECT_EQ(arrive(0, 11), kProtocolError);  // more than the buffer holds
  EXPECT_EQ(arrive(1, 10), kOk);
  EXPECT_EQ(arrive(1, 0), kProtocolError);  // twice
  receive({10});
  EXPECT_EQ(queue_.on_write({.slot = 2, .writes = 1}, 1, &progress_),
            kProtocolError);  // not advertised
}

TEST_F(ReceiveQueueTest, RunsOfSlotsDoNotWrap) {
  for (uint32_t round = 0; round < 2 * kCtsSlots; ++round) {
    receive({1, 1, 1});
    uint32_t advertised = 0;
    for (auto run = queue_.next_run(); run.count > 0; run = queue_.next_run()) {
      EXPECT_LE(run.first + run.count, kCtsSlots);
      queue_.on_run_posted(run.count);
      advertised += run.count;
    }
    EXPECT_EQ(advertised, 3U);
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(arrive((round * 3 + i) % kCtsSlots, 1), kOk);
    EXPECT_EQ(requests_.back().state(), State::kDone);
  }
}

TEST_F(ReceiveQueueTest, PostedReceivesAreLimited) {
  for (uint32_t i = 0; i < kMaxReceives; ++i) receive(std::vector<Bytes>(kMaxGroup, 1));
  MessageReceive request;
  test::pending(request).add(pointer(0x1000), 1, 0, {});
  EXPECT_FALSE(queue_.post(request));
  for (uint32_t i = 0; i < kMaxGroup; ++i) EXPECT_EQ(arrive(i, 1), kOk);
  EXPECT_TRUE(queue_.post(request));
}

TEST_F(ReceiveQueueTest, UsesMemoryOfPendingReceivesOnly) {
  receive({10}, 5);
  receive({10}, 6);
  EXPECT_TRUE(queue_.uses(5));
  EXPECT_FALSE(queue_.uses(7));
  EXPECT_EQ(arrive(0, 10), kOk);
  EXPECT_FALSE(queue_.uses(5));
  EXPECT_TRUE(queue_.uses(6));
}

TEST_F(ReceiveQueueTest, FailingFailsPendingReceivesOnly) {
  auto& done = receive({10});
  auto& pending = receive({10});
  EXPECT_EQ(arrive(0, 10), kOk);
  queue_.fail(MessageFailure::kPeerClosed);
  EXPECT_EQ(done.state(), State::kDone);
  EXPECT_EQ(pending.state(), State::kFailed);
  EXPECT_EQ(pending.failure, MessageFailure::kPeerClosed);
}

TEST_F(ReceiveQueueTest, DroppedRequestsAreNotTouched) {
  auto& request = receive({10});
  queue_.drop_requests();
  EXPECT_EQ(arrive(0, 10), kOk);
  EXPECT_EQ(request.state(), State::kPending);
}

// The peer may send an eager message before it has read the slot of the buffer: the slot stays in
// the ring.
TEST_F(ReceiveQueueTest, UnreadSlotsAreNotOverwritten) {
  constexpr EagerCells kCells(64);
  std::vector<uint8_t> memory(kCells.bytes());
  std::vector<uint8_t> buffer(1);
  queue_.enable_eager(kCells, memory.data());
  for (uint32_t i = 0; i < kMaxReceives; ++i) {
    MessageReceive& request = test::pending(requests_.emplace_back());
    for (uint32_t k = 0; k < kMaxGroup; ++k) request.add(buffer.data(), 1, 0, {.key = 1});
    ASSERT_TRUE(queue_.post(request));
  }
  ASSERT_EQ(queue_.next_run().count, kCtsSlots);
  queue_.on_run_posted(kCtsSlots);
  for (uint32_t i = 0; i < kMaxGroup; ++i) {
    const EagerHeader header{.next_slot = 0, .number = i, .size = 1, .tag = 0};
    std::memcpy(memory.data() + kCells.offset(i), &header, sizeof header);
    EXPECT_EQ(arrive(i, sizeof header + 1, Immediate::kEager), kOk);
  }
  receive(std::vector<Bytes>(kMaxGroup, 1));  // one receive is done
  EXPECT_EQ(queue_.next_run().count, 0U);
  EXPECT_EQ(arrive(kMaxGroup, 1), kOk);  // a peer that writes to a slot has read those before
  EXPECT_EQ(queue_.next_run().count, kMaxGroup);
}

TEST_F(ReceiveQueueTest, FilledSlotIsOverwritten) {
  for (uint32_t i = 0; i < kMaxReceives; ++i) receive(std::vector<Bytes>(kMaxGroup, 1));
  advertise();
  for (uint32_t i = 0; i < kMaxGroup; ++i) EXPECT_EQ(arrive(i, 1), kOk);
  receive(std::vector<Bytes>(kMaxGroup, 1));
  EXPECT_EQ(queue_.next_run().first, 0U);
  EXPECT_EQ(queue_.next_run().count, kMaxGroup);
}

TEST_F(ReceiveQueueTest, OnlySizesOfPostedBuffersAreWritten) {
  auto& request = receive({10, 20});
  request.sizes[2] = 77;
  EXPECT_EQ(arrive(0, 1), kOk);
  EXPECT_EQ(arrive(1, 2), kOk);
  EXPECT_EQ(request.sizes[1], 2U);
  EXPECT_EQ(request.sizes[2], 77U);
}

TEST_F(ReceiveQueueTest, EagerMessageForAPartlyFilledBufferIsAProtocolError) {
  constexpr EagerCells kCells(64);
  std::vector<uint8_t> memory(kCells.bytes());
  std::vector<uint8_t> buffer(100);
  queue_.enable_eager(kCells, memory.data());
  MessageReceive request;
  test::pending(request).add(buffer.data(), 100, 0, {0, 1});
  ASSERT_TRUE(queue_.post(request));
  EXPECT_EQ(arrive(0, 10, 0), kOk) << "the first of several writes";
  const EagerHeader header{.size = 1};
  std::memcpy(memory.data(), &header, sizeof header);
  EXPECT_EQ(arrive(0, sizeof header + 1, Immediate::kEager), kProtocolError);
}

TEST_F(ReceiveQueueTest, WritingARunFillsOnlyItsSlots) {
  receive({10, 20, 30});
  table_->slots[2].sequence = 77;
  queue_.write({.first = 0, .count = 2}, 1, *table_);
  EXPECT_EQ(table_->slots[1].sequence, 2U);
  EXPECT_EQ(table_->slots[2].sequence, 77U);
}

// New slots are urgent once the peer has no more unused slots than there are new ones.
TEST_F(ReceiveQueueTest, NewSlotsAreUrgentWhenThePeerHasFewLeft) {
  for (int i = 0; i < 4; ++i) receive({10});
  advertise();
  EXPECT_FALSE(queue_.urgent(4)) << "the peer wants four slots and has them";
  EXPECT_TRUE(queue_.urgent(5));
  receive({10});
  EXPECT_FALSE(queue_.urgent(0)) << "four are left, one is new";
  receive({10});
  EXPECT_EQ(queue_.on_write({.slot = 0, .writes = 1}, 1, &progress_), kOk);
  EXPECT_FALSE(queue_.urgent(0)) << "three are left, two are new";
  EXPECT_EQ(queue_.on_write({.slot = 1, .writes = 1}, 1, &progress_), kOk);
  EXPECT_TRUE(queue_.urgent(0)) << "two are left, two are new";
}

// They fill buffers that were never advertised, so that more are complete than advertised.
TEST_F(ReceiveQueueTest, NewSlotsAreUrgentWhenEagerMessagesHaveUsedMore) {
  constexpr EagerCells kCells(64);
  constexpr uint32_t kMessages = 9;
  std::vector<uint8_t> memory(kCells.bytes());
  std::vector<uint8_t> buffer(1);
  queue_.enable_eager(kCells, memory.data());
  for (uint32_t i = 0; i <= kMessages; ++i) {
    MessageReceive& request = test::pending(requests_.emplace_back());
    request.add(buffer.data(), 1, 0, {.key = 1});
    ASSERT_TRUE(queue_.post(request));
    if (i == 0) advertise();
  }
  for (uint32_t i = 0; i < kMessages; ++i) {
    const EagerHeader header{.next_slot = 0, .number = i, .size = 1, .tag = 0};
    std::memcpy(memory.data() + kCells.offset(i), &header, sizeof header);
    EXPECT_EQ(queue_.on_write({.connection = 0, .slot = i, .writes = Immediate::kEager},
                              sizeof header + 1, &progress_),
              kOk);
  }
  EXPECT_TRUE(queue_.urgent(0));
}

TEST_F(ReceiveQueueTest, CountsArrivedWrites) {
  receive({10});
  EXPECT_EQ(queue_.moves(), 0U);
  EXPECT_EQ(arrive(0, 1, 0), kOk);
  EXPECT_EQ(arrive(0, 1, 2), kOk);
  EXPECT_EQ(queue_.moves(), 2U);
}

TEST_F(ReceiveQueueTest, PendingReceiveTellsWhatItsBuffersHave) {
  const auto& pair = receive({10, 10});
  const auto& single = receive({10});
  EXPECT_EQ(arrive(1, 7), kOk);
  EXPECT_EQ(arrive(2, 0, Immediate::kTooLong), kOk);
  EXPECT_EQ(pair.state(), State::kPending);
  EXPECT_EQ(single.state(), State::kPending) << "receives are done in their order";
  EXPECT_FALSE(pair.buffers[0].done);
  EXPECT_TRUE(pair.buffers[1].done);
  EXPECT_EQ(pair.sizes[1], 7U);
  EXPECT_EQ(pair.buffers[1].failure, MessageFailure::kNone);
  EXPECT_TRUE(single.buffers[0].done);
  EXPECT_EQ(single.buffers[0].failure, MessageFailure::kTooLong);
  EXPECT_EQ(queue_.completed_slots(), 0U);
  EXPECT_EQ(arrive(0, 1), kOk);
  EXPECT_EQ(queue_.completed_slots(), 3U);
}

TEST_F(ReceiveQueueTest, RenewedQueueHasNoReceives) {
  auto& first = receive({10, 20});
  EXPECT_EQ(arrive(0, 3), kOk);
  receive({30});
  EXPECT_EQ(queue_.renew(), 50U) << "the bytes of unfilled buffers";
  EXPECT_EQ(queue_.posted_bytes(), 0U);
  EXPECT_TRUE(queue_.idle());
  EXPECT_TRUE(queue_.all_advertised());
  EXPECT_FALSE(queue_.uses(1));
  EXPECT_EQ(queue_.completed_slots(), 3U);
  EXPECT_EQ(queue_.on_write({.slot = 1, .writes = 1}, 1, &progress_), kProtocolError)
      << "the buffer was posted before the renewal";
  EXPECT_EQ(first.state(), State::kPending) << "dropped requests are not touched";
  auto& next = receive({10});
  EXPECT_EQ(arrive(3, 4), kOk);
  EXPECT_EQ(next.state(), State::kDone);
}

TEST_F(ReceiveQueueTest, InvalidEagerWriteIsAProtocolError) {
  constexpr EagerCells kCells(9000);
  std::vector<uint8_t> memory(kCells.bytes());
  const auto writes = [&](uint32_t cell, const EagerHeader& header, Bytes bytes) {
    std::memcpy(memory.data() + kCells.offset(cell), &header, sizeof header);
    return arrive(cell, bytes, Immediate::kEager);
  };
  const auto begins_with = [&](uint32_t cell, const EagerHeader& header, Bytes bytes) {
    queue_ = ReceiveQueue();
    queue_.enable_eager(kCells, memory.data());
    return writes(cell, header, bytes);
  };
  constexpr Bytes kHeader = sizeof(EagerHeader);
  constexpr uint32_t kLarge = EagerCells::kTinyCells;
  EXPECT_EQ(begins_with(kLarge, {.size = 9000}, kHeader + 9000), kOk);
  EXPECT_EQ(writes(kLarge, {.number = 1, .size = 1}, kHeader + 1), kProtocolError);  // not free
  EXPECT_EQ(begins_with(0, {.size = 8192}, kHeader + 8192), kOk);
  EXPECT_EQ(writes(1, {.number = 0, .size = 1}, kHeader + 1),
            kProtocolError);  // the same number again
  EXPECT_EQ(begins_with(0, {.size = 8193}, kHeader + 8193), kProtocolError);  // too large
  EXPECT_EQ(begins_with(kLarge, {.size = 9001}, kHeader + 9001), kProtocolError);
  EXPECT_EQ(begins_with(0, {.size = 64}, kHeader + 63), kProtocolError);  // a byte short
  EXPECT_EQ(begins_with(0, {.size = 0}, kHeader - 1), kProtocolError);    // half a header
  EXPECT_EQ(begins_with(0, {.number = EagerCells::kMessages, .size = 1}, kHeader + 1),
            kProtocolError);  // more than may be in flight
  EXPECT_EQ(begins_with(0, {}, 0), kProtocolError);
  // Every message of a train is checked.
  const auto train = [&](const EagerHeader& second, Bytes bytes) {
    std::memcpy(memory.data() + kHeader + 8, &second, sizeof second);
    return begins_with(0, {.size = 5}, kHeader + 8 + bytes);
  };
  EXPECT_EQ(train({.number = 1, .size = 3}, kHeader + 3), kOk);
  EXPECT_EQ(train({.number = 0, .size = 3}, kHeader + 3), kProtocolError);  // the same number again
  EXPECT_EQ(train({.number = 1, .size = 4}, kHeader + 3), kProtocolError);  // a byte short
  EXPECT_EQ(train({.number = 1, .size = ~0U}, kHeader + 3), kProtocolError);
  EXPECT_EQ(train({.number = 1, .size = 0}, kHeader - 1), kProtocolError);  // half a header
  EXPECT_EQ(begins_with(0, {.number = ~0U, .size = 1}, kHeader + 1), kProtocolError);
  EXPECT_EQ(begins_with(0, {.next_slot = 1, .size = 1}, kHeader + 1),
            kProtocolError);  // slot not advertised
  EXPECT_EQ(arrive(EagerCells::kCells, kHeader, Immediate::kEager),
            kProtocolError);  // no such cell
  queue_ = ReceiveQueue();
  EXPECT_EQ(arrive(0, kHeader, Immediate::kEager),
            kProtocolError);  // eager messages are not enabled
}

// Both queues; slots are copied from one table to the other.
TEST(MessageQueues, AgreeOverManyTurnsOfTheRing) {
  SendQueue sender;
  ReceiveQueue receiver;
  const auto send_table = std::make_unique<SendTable>();
  const auto receive_table = std::make_unique<ReceiveTable>();
  for (uint32_t round = 0; round < 500; ++round) {
    const uint32_t count = 1 + round % kMaxGroup;
    MessageReceive receive;
    test::pending(receive);
    for (uint32_t i = 0; i < count; ++i) {
      receive.add(pointer(0x1000), 100, static_cast<int32_t>(i), {0, 1});
    }
    ASSERT_TRUE(receiver.post(receive));
    for (auto run = receiver.next_run(); run.count > 0; run = receiver.next_run()) {
      receiver.write(run, 1, *receive_table);
      std::copy_n(&receive_table->slots[run.first], run.count, &send_table->slots[run.first]);
      receiver.on_run_posted(run.count);
    }
    std::deque<MessageSend> sends(count);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t tag = (i + round) % count;
      ASSERT_TRUE(sender.post(
          test::pending(sends[i], {pointer(0x1000), tag + 1, static_cast<int32_t>(tag), 1})));
    }
    ASSERT_EQ(sender.match(*send_table, 1 << 20, [](uint64_t) {}), SendQueue::Match::kOk);
    WorkRequest write;
    while (sender.next_write(0, &write)) {
      sender.on_posted();
      ReceiveQueue::Progress progress;
      ASSERT_EQ(receiver.on_write(Immediate::unpack(write.immediate), write.length, &progress),
                ReceiveQueue::Arrival::kOk);
      ASSERT_TRUE(sender.on_write_done(static_cast<uint32_t>(write.id), CompletionStatus::kOk));
    }
    ASSERT_EQ(receive.state(), State::kDone);
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(receive.sizes[i], i + 1);
      EXPECT_EQ(sends[i].state(), State::kDone);
    }
  }
  EXPECT_TRUE(sender.idle());
  EXPECT_TRUE(receiver.idle());
}

}  // namespace
}  // namespace pacecar::receive_queue_test
