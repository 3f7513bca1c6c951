// Asynchronous copies between GPU and pinned memory.
#include "gdr/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "gdr/gpu_system.h"
#include "tests/support/fake_gpu.h"

namespace pacecar::staging_test {
namespace {

using test::FakeGpu;
using test::GpuBuffer;
using testing::HasSubstr;

constexpr size_t kBytes = 100'000;

class Staging : public testing::Test {
 protected:
  Staging() { std::iota(bytes_.begin(), bytes_.end(), uint8_t{1}); }

  Result<bool> wait(const CopyEvent& event) {
    while (true) {
      auto done = event.done();
      if (!done || *done) return done;
      std::this_thread::yield();
    }
  }
  void hold(bool held) const {
    fake_.with([held](FakeCuda& cuda) { cuda.copies_wait = held; });
  }

  const FakeGpu fake_{FAKE_CUDA};
  const std::shared_ptr<GpuSystem> system_ = GpuSystem::open(FAKE_CUDA).value();
  const std::shared_ptr<const CopyEngine> engine_ = system_->engine(0).value();
  const std::unique_ptr<PinnedMemory> pinned_ = PinnedMemory::allocate(engine_, kBytes).value();
  const GpuBuffer memory_{fake_, kBytes};
  StagedRange range_{engine_, memory_.data(), kBytes};
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(kBytes);
};

TEST_F(Staging, CopiesBothWaysAndReportsCompletion) {
  CopyEvent event;
  std::ranges::copy(bytes_, pinned_->bytes().begin());
  hold(true);
  ASSERT_TRUE(range_.copy(CopyWay::kToDevice, memory_.data(), pinned_->bytes().data(), kBytes));
  ASSERT_TRUE(event.record(engine_, CopyWay::kToDevice));
  EXPECT_EQ(event.done(), false) << "the copy is held";
  hold(false);
  ASSERT_EQ(wait(event), true);
  EXPECT_EQ(memory_.read(), bytes_);

  std::ranges::fill(pinned_->bytes(), 0);
  ASSERT_TRUE(
      range_.copy(CopyWay::kToHost, memory_.data() + 7, pinned_->bytes().data(), kBytes - 7));
  ASSERT_TRUE(event.record(engine_, CopyWay::kToHost));
  ASSERT_EQ(wait(event), true);
  EXPECT_TRUE(std::equal(bytes_.begin() + 7, bytes_.end(), pinned_->bytes().begin()));
}

TEST_F(Staging, AGraphThatAnotherThreadCapturesIsNotDisturbed) {
  fake_.with([](FakeCuda& cuda) { cuda.capturing = true; });
  {
    const auto pinned = PinnedMemory::allocate(engine_, kBytes);
    ASSERT_TRUE(pinned);
    CopyEvent event;
    std::ranges::copy(bytes_, (*pinned)->bytes().begin());
    ASSERT_TRUE(range_.copy(CopyWay::kToDevice, memory_.data(), (*pinned)->bytes().data(), kBytes));
    ASSERT_TRUE(event.record(engine_, CopyWay::kToDevice));
    ASSERT_EQ(wait(event), true);
    engine_->wait();
  }
  fake_.with([](FakeCuda& cuda) {
    cuda.capturing = false;
    EXPECT_EQ(cuda.broken_captures, 0);
  });
  EXPECT_EQ(memory_.read(), bytes_);
}

TEST_F(Staging, FailedCopyIsReported) {
  fake_.with([](FakeCuda& cuda) { cuda.copies_fail = true; });
  CopyEvent event;
  ASSERT_TRUE(range_.copy(CopyWay::kToHost, memory_.data(), pinned_->bytes().data(), 10));
  ASSERT_TRUE(event.record(engine_, CopyWay::kToHost));
  const auto done = wait(event);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kSystem);
  EXPECT_THAT(done.error().message, HasSubstr("illegal memory access"));
}

TEST_F(Staging, WithdrawWaitsForCopiesAndRefusesMore) {
  hold(true);
  const auto copy = [&] {
    return range_.copy(CopyWay::kToHost, memory_.data(), pinned_->bytes().data(), kBytes);
  };
  ASSERT_TRUE(copy());
  std::atomic<bool> withdrawn = false;
  std::thread other([&] {
    range_.withdraw();
    withdrawn = true;
  });
  int started = 1;
  while (copy()) {
    ++started;
    std::this_thread::yield();
  }
  EXPECT_FALSE(withdrawn) << "a copy is not done yet";
  hold(false);
  other.join();
  EXPECT_EQ(fake_.with([](FakeCuda& cuda) { return cuda.copies; }), started);
  const auto late = copy();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(Staging, RangeCoversOnlyItsMemory) {
  EXPECT_TRUE(range_.covers(memory_.data(), kBytes));
  EXPECT_FALSE(range_.covers(memory_.data() + 1, kBytes));
  EXPECT_FALSE(range_.covers(memory_.data() - 1, 1));
}

TEST_F(Staging, FailedPinnedAllocationNamesTheCure) {
  fake_.with([](FakeCuda& cuda) { cuda.host_memory_fails = true; });
  const auto more = PinnedMemory::allocate(engine_, kBytes);
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, HasSubstr("PACECAR_GPU=host"));
}

TEST(CopyEngine, FreesStreamsAndPinnedMemory) {
  const FakeGpu fake(FAKE_CUDA);
  const auto alive = [&fake] {
    return fake.with([](FakeCuda& cuda) { return std::pair(cuda.streams, cuda.host_allocations); });
  };
  const auto before = alive();
  {
    const auto system = GpuSystem::open(FAKE_CUDA).value();
    const auto engine = system->engine(0).value();
    EXPECT_EQ(engine, system->engine(0).value()) << "a GPU has one engine";
    const auto pinned = PinnedMemory::allocate(engine, kBytes).value();
    EXPECT_NE(alive(), before);
  }
  EXPECT_EQ(alive(), before);
}

}  // namespace
}  // namespace pacecar::staging_test
