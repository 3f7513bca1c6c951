// A peer rank that sends invalid records about landings and about copies from them.
#include <gtest/gtest.h>

#include <future>

#include "tests/gdr/rma_ranks.h"
#include "transport/rma/rank_connector.h"

namespace pacecar::rma::rma_gpu_hostile_test {
namespace {

constexpr uint64_t kGpuBytes = 4096;
constexpr WindowId kGpuWindow = 1;
constexpr WindowId kHostWindow = 2;

// Rank 0 is a Group; rank 1 is hostile, driven by the test.
class RmaGpuHostile : public testing::Test {
 protected:
  RmaGpuHostile() {
    const Options options{.settings = {{"PACECAR_NICS", "soft:udp:lo"}, {"PACECAR_GPU", "staged"}}};
    context_ = Context::open(options).value();
    std::vector<std::unique_ptr<Listener>> listeners;
    std::vector<Handle> handles;
    for (int rank = 0; rank < 2; ++rank) {
      listeners.push_back(context_->listen(0).value());
      handles.push_back(listeners.back()->handle());
    }
    auto joining = std::async(std::launch::async, [&] {
      group_ = Group::join(context_, 0, *listeners[0], handles, 0, 1, {}).value();
    });
    memory_ = context_->register_memory(0, records_.data(), records_.bytes()).value();
    RankConnector connector(*context_, 0, *listeners[1], 1, 2, records_.data(), memory_);
    EXPECT_TRUE(connector.connect_all(handles, 1));
    joining.get();
    for (size_t rank = 0; rank < 2; ++rank) {
      inboxes_.push_back(connector.take_inbox(rank));
      outboxes_.push_back(connector.take_outbox(rank));
    }
    // Rank 1 advertises windows that it does not have.
    auto sharing = std::async(std::launch::async, [&] {
      windows_.push_back(group_->share(gpu_memory_.range()).value());
      windows_.push_back(group_->share(host_memory_.range()).value());
    });
    send({.kind = RecordKind::kWindow, .window = 7, .offset = 64, .length = 100, .staged = 1});
    send({.kind = RecordKind::kWindow, .window = 8, .offset = 64, .length = 100});
    sharing.get();
  }
  ~RmaGpuHostile() override {
    for (SharedWindow* window : windows_) group_->unshare(window);
    group_.reset();
    inboxes_.clear();
    outboxes_.clear();
    (void)context_->deregister_memory(0, memory_);
  }

  void send(const Record& record) {
    outboxes_[0].add(record, nullptr);
    for (int i = 0; i < 100 && !outboxes_[0].idle(); ++i) {
      context_->progress(0);
      if (!outboxes_[0].advance()) return;
    }
  }

  const test::FakeGpu gpu_{FAKE_CUDA};
  const test::RankMemory gpu_memory_{gpu_, kGpuBytes, true};
  const test::RankMemory host_memory_{gpu_, kGpuBytes, false};
  std::shared_ptr<Context> context_;
  OwnPages<Record> records_{2 * kRecords * 2};
  const Memory* memory_ = nullptr;
  std::vector<Inbox> inboxes_;
  std::vector<Outbox> outboxes_;
  std::unique_ptr<Group> group_;
  std::vector<SharedWindow*> windows_;
};

class RmaGpuHostileRecord : public RmaGpuHostile, public testing::WithParamInterface<Record> {};

TEST_P(RmaGpuHostileRecord, InvalidRecordFailsTheGroupAndWritesNothing) {
  gpu_memory_.write(std::vector<uint8_t>(kGpuBytes, 5));
  send(GetParam());
  test::step_until("the failure", [&] {
    group_->progress();
    return group_->failure().has_value();
  });
  EXPECT_NE(group_->failure()->message.find("run the same version"), std::string::npos)
      << group_->failure()->message;
  EXPECT_EQ(gpu_memory_.read(0, kGpuBytes), std::vector<uint8_t>(kGpuBytes, 5));
  EXPECT_EQ(host_memory_.read(0, kGpuBytes), std::vector<uint8_t>(kGpuBytes));
}

INSTANTIATE_TEST_SUITE_P(
    Records, RmaGpuHostileRecord,
    testing::Values(
        Record{.kind = RecordKind::kDeliver,
               .window = kGpuWindow,
               .offset = kGpuBytes - 8,
               .length = 9},
        Record{.kind = RecordKind::kDeliver,
               .window = kGpuWindow,
               .offset = ~uint64_t{7},
               .length = 8},
        Record{.kind = RecordKind::kDeliver, .window = kGpuWindow, .length = ~uint64_t{0}},
        Record{.kind = RecordKind::kDeliver,
               .window = kGpuWindow,
               .length = 8,
               .answer_offset = Landing::kBytes - 7},
        Record{.kind = RecordKind::kDeliver,
               .window = kGpuWindow,
               .length = 8,
               .answer_offset = ~uint64_t{7}},
        Record{.kind = RecordKind::kDeliver, .window = kHostWindow, .length = 8},
        Record{.kind = RecordKind::kDeliver, .window = 3, .length = 8},
        Record{.kind = RecordKind::kDelivered, .value = 1},
        Record{.kind = RecordKind::kDelivered, .value = ~uint64_t{0}},
        Record{.kind = RecordKind::kLanding, .offset = 64, .length = 8},
        Record{.kind = RecordKind::kLanding, .offset = 64, .length = ~uint64_t{0}},
        Record{.kind = RecordKind::kSignal, .window = kGpuWindow, .offset = kGpuBytes},
        Record{.kind = RecordKind::kSignal, .window = kGpuWindow, .offset = 4},
        Record{.kind = RecordKind::kGet, .window = kGpuWindow, .length = 101, .answer_window = 7}));

// Rank 1 shared window 7 as GPU memory, but never sent a landing.
TEST_F(RmaGpuHostile, PutWithoutALandingFails) {
  auto put = group_->put(1, {windows_[1], 0}, 8, {windows_[0], 0}, std::nullopt);
  ASSERT_TRUE(put);
  Result<bool> tested = false;
  test::step_until("the failure", [&] { return !(tested = group_->test(*put)); });
  EXPECT_NE(tested.error().message.find("without a landing"), std::string::npos);
}

// Rank 0 accepts deliveries only as fast as their copies complete.
TEST_F(RmaGpuHostile, DeliveriesWaitForTheirCopies) {
  gpu_.with([](FakeCuda& cuda) { cuda.copies_wait = true; });
  for (uint64_t i = 0; i < 3 * Arrivals::kMost; ++i) {
    outboxes_[0].add(
        Record{
            .kind = RecordKind::kDeliver, .window = kGpuWindow, .offset = i % 512 * 8, .length = 8},
        nullptr);
  }
  const auto push = [&] {
    context_->progress(0);
    group_->progress();
    return outboxes_[0].advance().has_value() && outboxes_[0].idle();
  };
  for (int i = 0; i < 2'000; ++i) ASSERT_FALSE(push());
  gpu_.with([](FakeCuda& cuda) { cuda.copies_wait = false; });
  test::step_until("the flood", push);
  EXPECT_FALSE(group_->failure());
}

}  // namespace
}  // namespace pacecar::rma::rma_gpu_hostile_test
