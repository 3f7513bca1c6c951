// Loading the CUDA driver, and its failures.
#include "gdr/cuda_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gdr/gpu_system.h"
#include "tests/support/fake_gpu.h"

namespace pacecar::cuda_driver_test {
namespace {

using test::FakeGpu;
using testing::HasSubstr;
using testing::Not;

TEST(CudaDriver, MissingLibraryIsNamedWithItsCure) {
  const auto driver = CudaDriver::load("libcuda-that-is-not-there.so.1");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(driver.error().message, HasSubstr("libcuda-that-is-not-there"));
  EXPECT_THAT(driver.error().message, HasSubstr("install the driver"));
}

TEST(CudaDriver, MissingRequiredSymbolIsNamed) {
  const auto driver = CudaDriver::load(FAKE_CUDA_BROKEN);
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(driver.error().message, HasSubstr("lacks cuEventQuery:"));
  EXPECT_THAT(driver.error().message, Not(HasSubstr("cuFlush")));
}

TEST(CudaDriver, OldDriverLacksDmaBufAndFlush) {
  const FakeGpu fake(FAKE_CUDA_OLD);
  const auto system = GpuSystem::open(FAKE_CUDA_OLD);
  ASSERT_TRUE(system) << system.error().message;
  ASSERT_EQ((*system)->gpus().size(), 1U);
  const Gpu& gpu = (*system)->gpus().front();
  EXPECT_FALSE(gpu.dma_buf);
  EXPECT_FALSE(gpu.flush_call);
  EXPECT_TRUE(gpu.peer_memory);
}

TEST(CudaDriver, LoadingWithoutAGpuReturnsNotFound) {
  const FakeGpu fake(FAKE_CUDA);
  fake.with([](FakeCuda& cuda) { cuda.init_status = cuda::kErrorNoDevice; });
  auto driver = CudaDriver::load(FAKE_CUDA);
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(driver.error().message, HasSubstr("finds no GPU"));
  fake.with([](FakeCuda& cuda) {
    cuda.init_status = 0;
    cuda.devices = 0;
  });
  driver = CudaDriver::load(FAKE_CUDA);
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kNotFound);
}

TEST(CudaDriver, FailedCountOfGpusReturnsNotFound) {
  const FakeGpu fake(FAKE_CUDA);
  fake.with([](FakeCuda& cuda) { cuda.count_status = 1; });
  const auto driver = CudaDriver::load(FAKE_CUDA);
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(driver.error().message, HasSubstr("finds no GPU"));
}

TEST(CudaDriver, FailedInitNamesTheReason) {
  const FakeGpu fake(FAKE_CUDA);
  fake.with([](FakeCuda& cuda) { cuda.init_status = 2; });
  const auto driver = CudaDriver::load(FAKE_CUDA);
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kSystem);
  EXPECT_THAT(driver.error().message, HasSubstr("cuInit failed (out of memory, 2)"));
}

TEST(Gpus, AreListedWithTheirCapabilities) {
  const FakeGpu fake(FAKE_CUDA);
  fake.with([](FakeCuda& cuda) {
    cuda.devices = 2;
    cuda.peer_memory = false;
    cuda.writes_ordering = cuda::kOrderingOwner;
  });
  const auto system = GpuSystem::open(FAKE_CUDA);
  ASSERT_TRUE(system);
  ASSERT_EQ((*system)->gpus().size(), 2U);
  const Gpu& gpu = (*system)->gpus()[1];
  EXPECT_EQ(gpu.device, 1);
  EXPECT_EQ(gpu.pci_bus_id, "0000:3b:00.0") << "must be in lower case, as in sysfs";
  EXPECT_TRUE(gpu.dma_buf);
  EXPECT_FALSE(gpu.peer_memory);
  EXPECT_TRUE(gpu.flush_call);
  EXPECT_TRUE(gpu.orders_writes);
}

}  // namespace
}  // namespace pacecar::cuda_driver_test
