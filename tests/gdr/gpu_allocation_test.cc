// GPU memory that this process allocates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "gdr/gpu_system.h"
#include "gdr/staging.h"
#include "tests/support/fake_gpu.h"

namespace pacecar::gpu_allocation_test {
namespace {

constexpr size_t kAllocated = 100'000;

class GpuAllocationTest : public testing::Test {
 protected:
  const test::FakeGpu fake_{FAKE_CUDA};
  const std::shared_ptr<GpuSystem> system_ = GpuSystem::open(FAKE_CUDA).value();
  const std::shared_ptr<const CopyEngine> engine_ = system_->engine(0).value();
};

TEST_F(GpuAllocationTest, CopiesBothWays) {
  const auto memory = GpuAllocation::make(engine_, kAllocated).value();
  std::vector<uint8_t> bytes(1000);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  uint8_t* const at = memory->address() + kAllocated - bytes.size();
  ASSERT_TRUE(memory->write(at, bytes));
  EXPECT_EQ(fake_.read(at, bytes.size()), bytes) << "write() must return after the copy";
  std::vector<uint8_t> back(bytes.size());
  ASSERT_TRUE(memory->read(back, at));
  EXPECT_EQ(back, bytes);
}

TEST_F(GpuAllocationTest, CopyErrorsAreReturned) {
  const auto memory = GpuAllocation::make(engine_, kAllocated).value();
  fake_.with([](FakeCuda& cuda) { cuda.copies_fail = true; });
  std::vector<uint8_t> bytes(10);
  const auto read = memory->read(bytes, memory->address());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kSystem);
  EXPECT_FALSE(memory->write(memory->address() + kAllocated, bytes)) << "beyond the allocation";
}

TEST_F(GpuAllocationTest, OutOfMemoryNamesTheCure) {
  const auto memory = GpuAllocation::make(engine_, size_t{1} << 40);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(memory.error().message, testing::HasSubstr("nvidia-smi"));
}

}  // namespace
}  // namespace pacecar::gpu_allocation_test
