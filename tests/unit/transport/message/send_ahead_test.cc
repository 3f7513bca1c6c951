// SendQueue: eager messages, which leave before their slots are known; slots that a sender asks
// for; what a queue reports.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "tests/support/pending.h"
#include "transport/message/send_queue.h"

namespace pacecar::send_ahead_test {
namespace {

using State = MessageRequest::State;

constexpr Bytes kWriteBytes = 64 << 10;
constexpr Bytes kLarge = 12000;
constexpr EagerCells kCells(kLarge);
constexpr Bytes kShort = 16;

class SendAheadTest : public testing::Test {
 protected:
  void enable() { queue_.enable_eager(kCells, cells_.data(), 9, {.address = 0x5000, .key = 3}); }
  MessageSend& send(Bytes size, int32_t tag = 0) {
    MessageSend& request = requests_.emplace_back();
    EXPECT_TRUE(queue_.post(test::pending(request, {data_.data(), size, tag, 1, 0})));
    return request;
  }
  void advertise(int32_t tag = 0, Bytes size = 1 << 20, uint64_t eager_freed = 0) {
    table_->slots[sequence_ % kCtsSlots] = {.address = 0x100000 * (sequence_ + 1),
                                            .size = size,
                                            .key = 7,
                                            .tag = tag,
                                            .first_sequence = sequence_ + 1,
                                            .group_size = 1,
                                            .eager_freed = eager_freed,
                                            .sequence = sequence_ + 1};
    ++sequence_;
  }
  SendQueue::Match match() {
    return queue_.match(*table_, kWriteBytes, [](uint64_t) {});
  }
  // Posts what can be posted; returns how many writes.
  size_t post_all() {
    const size_t before = writes_.size();
    for (WorkRequest write; queue_.next_write(0, &write); writes_.push_back(write)) {
      bytes_.push_back(queue_.on_posted());
    }
    return writes_.size() - before;
  }
  uint32_t done(size_t write, CompletionStatus status = CompletionStatus::kOk) {
    return queue_.on_write_done(static_cast<uint32_t>(writes_[write].id), status);
  }

  std::vector<uint8_t> cells_ = std::vector<uint8_t>(kCells.bytes());
  std::vector<uint8_t> data_ = std::vector<uint8_t>(1 << 20, 'x');
  SendQueue queue_;
  std::unique_ptr<SendTable> table_ = std::make_unique<SendTable>();
  std::deque<MessageSend> requests_;
  std::vector<WorkRequest> writes_;
  std::vector<Bytes> bytes_;
  uint64_t sequence_ = 0;
};

TEST_F(SendAheadTest, ShortMessagesShareAWrite) {
  enable();
  for (int i = 0; i < 3; ++i) {
    const auto& request = send(kShort);
    EXPECT_EQ(match(), SendQueue::Match::kOk);
    EXPECT_EQ(request.state(), State::kDone) << "the message has been copied";
    EXPECT_EQ(request.count, 1U);
    EXPECT_EQ(request.sizes[0], kShort);
  }
  EXPECT_EQ(post_all(), 1U);
  EXPECT_EQ(Immediate::unpack(writes_[0].immediate).writes, Immediate::kEager);
  EXPECT_EQ(writes_[0].local_key, 9U);
  EXPECT_EQ(writes_[0].remote_key, 3U);
  EXPECT_EQ(writes_[0].remote, 0x5000U);
  EXPECT_TRUE(writes_[0].host);
  EXPECT_EQ(writes_[0].length,
            EagerCells::next(EagerCells::next(24 + kShort) + 24 + kShort) + 24 + kShort);
  EXPECT_EQ(bytes_[0], 3 * kShort) << "without headers";
  EXPECT_EQ(done(0), 3U);
  for (int i = 0; i < 3; ++i) advertise();
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_TRUE(queue_.idle());
  EXPECT_EQ(post_all(), 0U) << "no message is sent twice";
}

TEST_F(SendAheadTest, EagerMessagesAheadOfTheirSlotsAreLimited) {
  enable();
  for (uint32_t i = 0; i < EagerCells::kMessages + 3; ++i) send(0);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all(), 1U);
  EXPECT_EQ(done(0), EagerCells::kMessages);
  EXPECT_TRUE(queue_.waiting());
  EXPECT_EQ(requests_[EagerCells::kMessages - 1].state(), State::kDone);
  EXPECT_EQ(requests_[EagerCells::kMessages].state(), State::kPending);
}

TEST_F(SendAheadTest, LongMessageWaitsAndBlocksLaterOnes) {
  enable();
  const auto& before = send(kShort);
  const auto& large = send(kLarge + 1);
  const auto& behind = send(kShort);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(before.state(), State::kDone);
  EXPECT_EQ(large.state(), State::kPending);
  EXPECT_EQ(behind.state(), State::kPending);
}

TEST_F(SendAheadTest, ShortMessagesWithBuffersShareAWriteIfThereAreSeveral) {
  enable();
  for (const bool others : {false, true}) {
    const size_t first = requests_.size();
    send(kShort);
    if (others) send(kShort);
    advertise();
    if (others) advertise();
    EXPECT_EQ(match(), SendQueue::Match::kOk);
    const size_t posted = post_all();
    EXPECT_EQ(posted, 1U);
    const uint32_t kind = Immediate::unpack(writes_.back().immediate).writes;
    EXPECT_EQ(kind == Immediate::kEager, others) << "a single message goes into its buffer";
    EXPECT_EQ(done(writes_.size() - 1), others ? 2U : 1U);
    EXPECT_EQ(requests_[first].state(), State::kDone);
  }
  EXPECT_TRUE(queue_.idle());
}

TEST_F(SendAheadTest, SlotsAreAskedForOnlyBehindEagerMessages) {
  enable();
  EXPECT_EQ(queue_.wanted_slots(), 0U);
  send(kLarge + 1);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(queue_.wanted_slots(), 0U) << "the receiver advertises the first slots at once";
  advertise();
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  post_all();
  send(kShort);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(queue_.wanted_slots(), 0U) << "the short message is eager";
  send(kLarge + 1);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(queue_.wanted_slots(), 3U) << "the slot behind that of the eager message";
  advertise();
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(queue_.wanted_slots(), 3U);
  advertise();
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(queue_.wanted_slots(), 0U) << "nothing waits";
}

TEST_F(SendAheadTest, CountsMovesAndArrivals) {
  send(kShort);
  EXPECT_EQ(queue_.moves(), 0U);
  advertise();
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  const uint64_t matched = queue_.moves();
  EXPECT_GT(matched, 0U);
  post_all();
  EXPECT_EQ(queue_.arrived(), 0U);
  done(0);
  EXPECT_GT(queue_.moves(), matched);
  EXPECT_EQ(queue_.arrived(), 1U);
  send(kShort);
  advertise();
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  post_all();
  done(1, CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(queue_.arrived(), 1U) << "the failed write has not arrived";
}

TEST_F(SendAheadTest, RequestReportsItsSlotAndSize) {
  advertise(5);
  advertise(6);
  send(100, 5);
  const auto& second = send(100, 6);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(second.slot, 1U);
  EXPECT_EQ(second.sizes[0], 100U);
}

TEST_F(SendAheadTest, RenewedQueueContinuesAtTheGivenSlot) {
  send(kShort);
  advertise();
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all(), 1U);
  EXPECT_EQ(done(0), 1U);
  send(kShort);
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  const uint64_t moves = queue_.moves();
  sequence_ = 10;
  queue_.renew(10);
  EXPECT_TRUE(queue_.idle()) << "waiting messages are dropped";
  EXPECT_EQ(queue_.arrived(), 1U) << "the peer's count continues, too";
  EXPECT_GE(queue_.moves(), moves);
  const auto& request = send(kShort);
  advertise();
  EXPECT_EQ(match(), SendQueue::Match::kOk);
  EXPECT_EQ(post_all(), 1U);
  EXPECT_EQ(Immediate::unpack(writes_[1].immediate).slot, 10U);
  EXPECT_EQ(done(1), 1U);
  EXPECT_EQ(queue_.arrived(), 2U);
  EXPECT_EQ(request.state(), State::kDone);
}

}  // namespace
}  // namespace pacecar::send_ahead_test
