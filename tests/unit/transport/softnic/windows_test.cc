// Memory windows of the software NIC: who may use them, and how a peer invalidates them.
#include <gtest/gtest.h>

#include "tests/support/standard_pair.h"

namespace pacecar::windows_test {
namespace {

using test::StandardPair;
using test::TestMemory;

constexpr uint32_t kKey = 0xABCDEF01;

class SoftNicWindows : public testing::Test {
 protected:
  MemoryWindow window(std::optional<QueuePairId> queue_pair, size_t offset = 100,
                      size_t length = 50) {
    return {.address = to_.bytes.data() + offset,
            .length = length,
            .remote_address = 5000,
            .key = kKey,
            .access = Access::kRemoteAll,
            .queue_pair = queue_pair};
  }
  CompletionStatus write(QueuePairId id, uint64_t remote, Bytes length) {
    WorkRequest request = StandardPair::write(from_, to_, length);
    request.remote = remote;
    request.remote_key = kKey;
    return outcome(id, request);
  }
  CompletionStatus outcome(QueuePairId id, const WorkRequest& request) {
    pair_.completions = {};
    pair_.post(0, id, request);
    EXPECT_TRUE(pair_.run_until_completed(0, 1));
    return pair_.completions[0].at(0).status;
  }
  WorkRequest invalidate(uint32_t key, Bytes length = 8) {
    WorkRequest send = StandardPair::send(from_, length, 9);
    send.opcode = Opcode::kSendInvalidate;
    send.immediate = key;
    return send;
  }
  void post_receive() {
    const auto receive = StandardPair::receive(inbox_, 17);
    ASSERT_EQ(pair_.nic(1).post_receives(ends_[1], {&receive, 1}), 1U);
  }

  StandardPair pair_;
  StandardPair::Ends ends_ = pair_.join();
  StandardPair::Ends others_ = pair_.join();
  TestMemory& from_ = pair_.memory(0, 2000, Access::kLocalWrite, 1);
  TestMemory& to_ = pair_.memory(1, 1000, Access::kLocalWrite, 0xEE);
  TestMemory& inbox_ = pair_.memory(1, 2000, Access::kLocalWrite);
};

TEST_F(SoftNicWindows, ShowTheirPartAtItsAddress) {
  ASSERT_TRUE(pair_.nic(1).bind_window(window({})));
  EXPECT_EQ(write(ends_[0], 5010, 40), CompletionStatus::kOk);
  EXPECT_TRUE(std::equal(to_.bytes.begin() + 110, to_.bytes.begin() + 150, from_.bytes.begin()));
  EXPECT_NE(to_.bytes[150], from_.bytes[40]);
  EXPECT_EQ(write(others_[0], 5000, 50), CompletionStatus::kOk);
  EXPECT_EQ(write(ends_[0], 5010, 41), CompletionStatus::kRemoteAccessError);
}

TEST_F(SoftNicWindows, OfOneQueuePairAreNotAnothers) {
  ASSERT_TRUE(pair_.nic(1).bind_window(window(ends_[1])));
  EXPECT_EQ(write(ends_[0], 5000, 50), CompletionStatus::kOk);
  WorkRequest read = StandardPair::write(from_, to_, 50);
  read.opcode = Opcode::kRead;
  read.remote = 5000;
  read.remote_key = kKey;
  EXPECT_EQ(outcome(ends_[0], read), CompletionStatus::kOk);
  EXPECT_EQ(outcome(others_[0], read), CompletionStatus::kRemoteAccessError);
}

TEST_F(SoftNicWindows, ForWritesAndAtomicsOfOneQueuePairAreNotAnothersEither) {
  ASSERT_TRUE(pair_.nic(1).bind_window(window(ends_[1])));
  EXPECT_EQ(write(others_[0], 5000, 50), CompletionStatus::kRemoteAccessError);
  StandardPair::Ends third = pair_.join();
  auto bound = window(ends_[1], 104, 48);
  bound.remote_address = 0;
  bound.key = kKey + 1;
  bound.access = Access::kRemoteAtomic;
  ASSERT_TRUE(pair_.nic(1).bind_window(bound));
  const WorkRequest add{.local = from_.bytes.data(),
                        .remote = 0,
                        .length = 8,
                        .local_key = from_.region.key,
                        .remote_key = kKey + 1,
                        .opcode = Opcode::kFetchAdd,
                        .operand = 1};
  EXPECT_EQ(outcome(third[0], add), CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(outcome(ends_[0], add), CompletionStatus::kOk);
}

TEST_F(SoftNicWindows, AreInvalidatedByTheirPeersSend) {
  for (const Bytes length : {Bytes{0}, Bytes{8}, Bytes{2000}}) {
    SCOPED_TRACE(length);
    ASSERT_TRUE(pair_.nic(1).bind_window(window(ends_[1])));
    post_receive();
    EXPECT_EQ(outcome(ends_[0], invalidate(kKey, length)), CompletionStatus::kOk);
    ASSERT_TRUE(pair_.run_until_completed(1, 1));
    const Completion& received = pair_.completions[1][0];
    EXPECT_EQ(received.bytes, length);
    EXPECT_TRUE(received.invalidated);
    EXPECT_FALSE(received.has_immediate);
    EXPECT_EQ(received.immediate, kKey);
  }
  EXPECT_EQ(write(ends_[0], 5000, 50), CompletionStatus::kRemoteAccessError);
}

// Neither a region, nor a window of all queue pairs, nor a window of another queue pair.
TEST_F(SoftNicWindows, NothingElseIsInvalidated) {
  ASSERT_TRUE(pair_.nic(1).bind_window(window(others_[1])));
  auto shared = window({});
  shared.key = kKey + 1;
  ASSERT_TRUE(pair_.nic(1).bind_window(shared));
  for (const uint32_t key : {to_.region.key, kKey, kKey + 1, kKey + 2}) {
    ends_ = pair_.join();
    post_receive();
    EXPECT_EQ(outcome(ends_[0], invalidate(key)), CompletionStatus::kRemoteAccessError);
  }
  EXPECT_EQ(write(others_[0], 5000, 50), CompletionStatus::kOk);
}

TEST_F(SoftNicWindows, AreGoneWhenTheyAreUnbound) {
  ASSERT_TRUE(pair_.nic(1).bind_window(window(ends_[1])));
  EXPECT_EQ(pair_.nic(1).bind_window(window({})).error().code, ErrorCode::kUnavailable);
  pair_.nic(1).unbind_window(kKey);
  pair_.nic(1).unbind_window(kKey);
  EXPECT_EQ(write(ends_[0], 5000, 50), CompletionStatus::kRemoteAccessError);
  EXPECT_TRUE(pair_.nic(1).bind_window(window({})));
  EXPECT_EQ(write(others_[0], 5000, 50), CompletionStatus::kOk);
}

TEST_F(SoftNicWindows, NeedAKeyARangeAndRoom) {
  auto none = window({});
  none.key = 0;
  EXPECT_EQ(pair_.nic(1).bind_window(none).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(pair_.nic(1).bind_window(window({}, 100, 0)).error().code, ErrorCode::kInvalidArgument);
  auto wraps = window({});
  wraps.remote_address = ~uint64_t{0} - 10;
  EXPECT_EQ(pair_.nic(1).bind_window(wraps).error().code, ErrorCode::kInvalidArgument);
  auto next = window({});
  uint32_t bound = 0;
  while (pair_.nic(1).bind_window(next)) {
    next.key += 1;
    ASSERT_LT(++bound, 1000U);
  }
  EXPECT_EQ(bound + 2, StandardPair::service_config().regions);
}

// What sends nothing completes in its turn.
TEST_F(SoftNicWindows, NothingToSendCompletesInOrder) {
  const WorkRequest nothing{.id = 2, .opcode = Opcode::kNothing};
  pair_.post(0, ends_[0], nothing);
  pair_.collect();
  ASSERT_EQ(pair_.completions[0].size(), 1U);
  EXPECT_EQ(pair_.completions[0][0].work_request, 2U);
  pair_.completions = {};
  post_receive();
  pair_.post(0, ends_[0], StandardPair::send(from_, 2000, 1));
  pair_.post(0, ends_[0], nothing);
  WorkRequest silent = nothing;
  silent.signaled = false;
  pair_.post(0, ends_[0], silent);
  pair_.collect();
  EXPECT_TRUE(pair_.completions[0].empty());
  int lost = 0;
  pair_.lose = [&](size_t from, test::Datagram&) { return from == 0 && ++lost == 2; };
  ASSERT_TRUE(pair_.run_until_completed(0, 2));
  EXPECT_EQ(pair_.completions[0][0].work_request, 1U);
  EXPECT_EQ(pair_.completions[0][1].work_request, 2U);
}

}  // namespace
}  // namespace pacecar::windows_test
