// A rank that sends invalid records: a group that receives one reports that rank as failed. Other
// groups, and transfers with other ranks, are not affected.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

#include "tests/support/joining_process.h"
#include "transport/rma/group.h"
#include "transport/rma/rank_connector.h"

namespace pacecar::rma::hostile_test {
namespace {

constexpr size_t kRanks = 3;
constexpr size_t kHostile = 1;
constexpr WindowId kFirstWindow = 1;
constexpr uint64_t kBytes = 4096;

// Ranks 0 and 2 are groups that share a window; the test itself sends the records of rank 1.
class RmaHostile : public testing::Test {
 protected:
  RmaHostile() {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      auto process =
          std::make_shared<test::Process>(std::vector<std::vector<test::Networks>>{{{"soft"}}});
      contexts_.push_back(std::shared_ptr<Context>(process, &process->context()));
      processes_.push_back(std::move(process));
      listeners_.push_back(contexts_.back()->listen(0).value());
      handles_.push_back(listeners_.back()->handle());
    }
    std::vector<std::future<void>> joining;
    for (const size_t rank : {size_t{0}, size_t{2}}) {
      joining.push_back(std::async(std::launch::async, [this, rank] { join(rank); }));
    }
    Context& context = *contexts_[kHostile];
    memory_ = context.register_memory(0, records_.data(), records_.bytes()).value();
    RankConnector connector(context, 0, *listeners_[kHostile], kHostile, kRanks, records_.data(),
                            memory_);
    EXPECT_TRUE(connector.connect_all(handles_, 1));
    for (size_t rank = 0; rank < kRanks; ++rank) {
      inboxes_.push_back(connector.take_inbox(rank));
      outboxes_.push_back(connector.take_outbox(rank));
    }
    // Rank 1 shares a window that it does not have.
    for (const size_t rank : {size_t{0}, size_t{2}}) {
      send_record(rank, {.kind = RecordKind::kWindow, .window = 7, .offset = 64, .length = 100});
    }
    for (auto& one : joining) one.get();
  }

  ~RmaHostile() override {
    inboxes_.clear();
    outboxes_.clear();
    (void)contexts_[kHostile]->deregister_memory(0, memory_);
  }

  void join(size_t rank) {
    groups_[rank] =
        Group::join(contexts_[rank], 0, *listeners_[rank], handles_, rank, 1, {}).value();
    windows_[rank] =
        groups_[rank]->share({.address = data_[rank].data(), .length = kBytes}).value();
  }

  void send_record(size_t rank, const Record& record) {
    outboxes_[rank].add(record, nullptr);
    for (int i = 0; i < 100 && !outboxes_[rank].idle(); ++i) {
      contexts_[kHostile]->progress(0);
      if (!outboxes_[rank].advance()) return;
    }
  }

  std::vector<std::shared_ptr<test::Process>> processes_;
  std::vector<std::shared_ptr<Context>> contexts_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<Handle> handles_;
  OwnPages<Record> records_{2 * kRecords * kRanks};
  const Memory* memory_ = nullptr;
  std::vector<Inbox> inboxes_;
  std::vector<Outbox> outboxes_;
  std::array<OwnPages<uint8_t>, kRanks> data_ = {
      OwnPages<uint8_t>(kBytes), OwnPages<uint8_t>(kBytes), OwnPages<uint8_t>(kBytes)};
  std::array<std::unique_ptr<Group>, kRanks> groups_;
  std::array<SharedWindow*, kRanks> windows_{};
};

class RmaHostileRecords : public RmaHostile,
                          public testing::WithParamInterface<std::vector<Record>> {};

TEST_P(RmaHostileRecords, InvalidRecordFailsOnlyTransfersWithItsSender) {
  for (const Record& record : GetParam()) send_record(0, record);
  Group& victim = *groups_[0];
  while (!victim.failure()) {
    victim.progress();
    contexts_[kHostile]->progress(0);
  }
  EXPECT_NE(victim.failure()->message.find("rank 1"), std::string::npos)
      << victim.failure()->message;
  const auto refused = victim.put(kHostile, {}, 0, {}, std::nullopt);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPeer);
  // Transfers with rank 2 still work.
  data_[0][5] = 99;
  auto put = victim.put(2, {windows_[0], 0}, kBytes, {windows_[0], 0},
                        Signal{{windows_[0], kBytes - 8}, 3});
  ASSERT_TRUE(put);
  while (!victim.test(*put).value()) groups_[2]->progress();
  auto& word = *reinterpret_cast<uint64_t*>(data_[2].data() + kBytes - 8);
  while (std::atomic_ref(word).load() != 3) groups_[2]->progress();
  EXPECT_EQ(data_[2][5], 99);
  EXPECT_FALSE(groups_[2]->failure());
  for (size_t i = 8; i < kBytes - 8; ++i)
    ASSERT_EQ(data_[0][i], 0) << "rank 1 has changed the memory of rank 0";
}

// NCCL's GIN tests an operation that has failed again and again. No other becomes the same one.
TEST_F(RmaHostile, OperationThatHasFailedStaysSo) {
  Group& victim = *groups_[0];
  const auto get = [&] { return victim.get(kHostile, {windows_[0], 0}, 8, {windows_[0], 0}); };
  Operation* waiting = nullptr;
  for (size_t i = 0; i < Outbox::kMaxWaiting; ++i) waiting = get().value();
  auto one_too_many = std::async(std::launch::async, get);  // waits for room
  send_record(0, {.kind = static_cast<RecordKind>(77)});
  while (!victim.failure()) {
    victim.progress();
    contexts_[kHostile]->progress(0);
  }
  EXPECT_EQ(one_too_many.get().error().code, ErrorCode::kPeer);
  for (int i = 0; i < 3; ++i) {
    const auto tested = victim.test(waiting);
    ASSERT_FALSE(tested);
    EXPECT_EQ(tested.error().code, ErrorCode::kPeer);
    const auto put = victim.put(2, {windows_[0], 0}, 8, {windows_[0], 0}, std::nullopt);
    ASSERT_TRUE(put);
    EXPECT_NE(*put, waiting);
    while (!victim.test(*put).value()) groups_[2]->progress();
  }
}

// Ranks share together, so a rank that is faster than the others may leave before they are done.
TEST_F(RmaHostile, RankThatSharesAndLeavesIsNotMissed) {
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    send_record(rank, {.kind = RecordKind::kWindow, .window = 8, .offset = 64, .length = 100});
    send_record(rank, {.kind = RecordKind::kBye});
  }
  const auto share = [&](size_t rank) {
    return groups_[rank]->share({.address = data_[rank].data(), .length = kBytes / 2}).has_value();
  };
  auto first = std::async(std::launch::async, share, 0);
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_TRUE(share(2));
  EXPECT_TRUE(first.get());
}

std::vector<Record> gets(size_t count) {
  return std::vector<Record>(
      count, {.kind = RecordKind::kGet, .window = kFirstWindow, .length = 1, .answer_window = 7});
}

INSTANTIATE_TEST_SUITE_P(
    Invalid, RmaHostileRecords,
    testing::Values(
        std::vector<Record>{{.kind = RecordKind::kSignal, .window = 2, .value = 1}},
        std::vector<Record>{{.kind = RecordKind::kSignal, .window = 1, .offset = kBytes}},
        std::vector<Record>{{.kind = RecordKind::kSignal, .window = 1, .offset = ~uint64_t{7}}},
        std::vector<Record>{{.kind = RecordKind::kSignal, .window = 1, .offset = 4}},
        std::vector<Record>{{.kind = RecordKind::kGet, .window = 2, .answer_window = 7}},
        std::vector<Record>{
            {.kind = RecordKind::kGet, .window = 1, .length = kBytes + 1, .answer_window = 7}},
        std::vector<Record>{{.kind = RecordKind::kGet,
                             .window = 1,
                             .offset = 2,
                             .length = ~uint64_t{0},
                             .answer_window = 7}},
        std::vector<Record>{
            {.kind = RecordKind::kGet, .window = 1, .length = 101, .answer_window = 7}},
        std::vector<Record>{{.kind = RecordKind::kGet, .window = 1, .answer_window = 8}},
        gets(1),  // the answer's window is not registered memory: the write is refused
        std::vector<Record>{{.kind = RecordKind::kGot}},
        std::vector<Record>{{.kind = RecordKind::kHello, .value = 1}},
        std::vector<Record>{{.kind = static_cast<RecordKind>(77)}},
        std::vector<Record>(3, Record{.kind = RecordKind::kWindow, .window = 9, .length = 8})));

}  // namespace
}  // namespace pacecar::rma::hostile_test
