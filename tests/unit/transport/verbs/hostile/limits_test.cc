// Devices whose limits are as small as the specification allows, and resources that run out over
// time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/hostile_ends.h"

namespace pacecar::limits_test {
namespace {

using testing::HasSubstr;

class VerbsLimits : public test::HostileEnds {
 protected:
  MemoryRegion region(size_t side) {
    return nic(side).register_memory(memory_[side].data(), kSize, Access::kRemoteAll).value();
  }
  void expect_sent(size_t count) {
    completions_ = {};
    const MemoryRegion local = region(0);
    const MemoryRegion remote = region(1);
    for (size_t i = 0; i < count; ++i) post(local, remote, 100);
    EXPECT_TRUE(wait(0, count));
    EXPECT_TRUE(wait(1, count));
    for (const Completion& each : completions_[0]) EXPECT_EQ(each.status, CompletionStatus::kOk);
  }

  std::array<std::vector<uint8_t>, 2> memory_{std::vector<uint8_t>(kSize),
                                              std::vector<uint8_t>(kSize)};
};

// Drivers discard the completions of a destroyed queue pair, also of shared receive requests.
TEST_F(VerbsLimits, SharedReceivesOfADestroyedQueuePairAreReplaced) {
  open({.late_receives = 1'000'000, .max_shared_receives = 127});
  const MemoryRegion local = region(0);
  const MemoryRegion remote = region(1);
  for (int round = 0; round < 20; ++round) {
    completions_ = {};
    for (int i = 0; i < 10; ++i) post(local, remote, 100);
    ASSERT_TRUE(wait(0, 10)) << "in round " << round;
    for (size_t side = 0; side < 2; ++side) nic(side).destroy_queue_pair(ends_[side]);
    join({});
  }
}

TEST_F(VerbsLimits, ReadsInFlightKeepTheLimitOfThePeer) {
  open({.max_reads = 1, .max_reads_started = 16});
  join({.paced = false});
  const MemoryRegion local = region(0);
  const MemoryRegion remote = region(1);
  for (int i = 0; i < 10; ++i) post(local, remote, 100, Opcode::kRead);
  ASSERT_TRUE(wait(0, 10));
  for (const Completion& each : completions_[0]) EXPECT_EQ(each.status, CompletionStatus::kOk);
}

TEST_F(VerbsLimits, QueuePairWithoutRoomForItsCompletionsIsRefused) {
  constexpr uint32_t kReceives = 127;
  constexpr uint32_t kEntries = 1000;
  open({.max_completions = kEntries, .max_shared_receives = kReceives});
  size_t made = 1;
  for (;; ++made) {
    const auto next = nic(0).create_queue_pair({});
    if (next) continue;
    EXPECT_THAT(next.error().message, HasSubstr("has no room for the completions of another"));
    break;
  }
  EXPECT_EQ(made, (kEntries - kReceives) / VerbsQueuePair::max_completions({}));
}

TEST_F(VerbsLimits, WritesArriveOverShortQueues) {
  open({.max_work_requests = 16});
  expect_sent(60);
}

TEST_F(VerbsLimits, WritesArriveWithOnePieceOneReadAndNoInlineData) {
  open({.max_pieces = 1, .max_inline = 0, .max_reads = 1, .max_reads_started = 1});
  expect_sent(20);
}

TEST_F(VerbsLimits, MemoryBeyondTheLargestRegionIsRefused) {
  open({.max_region_bytes = kSize});
  std::vector<uint8_t> large(2 * kSize);
  const auto refused = nic(0).register_memory(large.data(), large.size(), Access::kRemoteWrite);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("hostile0"));
  expect_sent(1);
}

TEST_F(VerbsLimits, FlushIsRefusedWithoutASecondCompletionQueue) {
  open({.max_completion_queues = 1});
  const MemoryRegion remote = region(1);
  const auto refused = nic(1).start_flush(remote, remote.address);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("ibv_create_cq"));
  expect_sent(1);
}

}  // namespace
}  // namespace pacecar::limits_test
