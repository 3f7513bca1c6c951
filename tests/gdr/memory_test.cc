// Pointer kinds, dma-buf exports and flushes by the driver; and the peer-memory module.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <filesystem>

#include "gdr/gpu_memory.h"
#include "gdr/gpu_system.h"
#include "tests/support/fake_gpu.h"

namespace pacecar::memory_test {
namespace {

using test::FakeGpu;
using test::GpuBuffer;
using testing::HasSubstr;

class GpuMemory : public testing::Test {
 protected:
  const CudaDriver& driver() const { return system_->driver(); }

  const FakeGpu fake_{FAKE_CUDA};
  const std::shared_ptr<GpuSystem> system_ = GpuSystem::open(FAKE_CUDA).value();
};

TEST_F(GpuMemory, GpuAndHostPointersAreDistinguished) {
  const GpuBuffer memory(fake_, 3 << 20, 1);
  const auto inside = kind_of_pointer(driver(), memory.data() + 12345);
  ASSERT_TRUE(inside);
  EXPECT_TRUE(inside->cuda);
  EXPECT_EQ(inside->device, 1);
  EXPECT_EQ(inside->base, reinterpret_cast<uint64_t>(memory.data()));
  EXPECT_EQ(inside->size, size_t{3} << 20);
  const int host = 0;
  EXPECT_FALSE(kind_of_pointer(driver(), &host)->cuda);
}

// A new allocation at an old address must not be mistaken for the old one.
TEST_F(GpuMemory, AllocationNumbersAreUnique) {
  uint64_t first = 0;
  {
    const GpuBuffer memory(fake_, 1 << 20);
    first = kind_of_gpu_range(driver(), memory.data() + 5, 100)->allocation;
    EXPECT_EQ(kind_of_gpu_range(driver(), memory.data(), 1 << 20)->allocation, first);
  }
  EXPECT_NE(first, 0U);
  const GpuBuffer again(fake_, 1 << 20);
  EXPECT_NE(kind_of_pointer(driver(), again.data())->allocation, first);
}

TEST_F(GpuMemory, RangeMustLieWithinAGpuAllocation) {
  const GpuBuffer memory(fake_, 1 << 20);
  EXPECT_TRUE(kind_of_gpu_range(driver(), memory.data(), 1 << 20));
  EXPECT_TRUE(kind_of_gpu_range(driver(), memory.data() + 5, (1 << 20) - 5));
  std::vector<uint8_t> host(100);
  for (const auto& wrong : {kind_of_gpu_range(driver(), memory.data() + 5, 1 << 20),
                            kind_of_gpu_range(driver(), memory.data(), ~size_t{0}),
                            kind_of_gpu_range(driver(), host.data(), host.size())}) {
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST_F(GpuMemory, ExportBeginsAtAPage) {
  const GpuBuffer memory(fake_, 64 << 10);
  const auto buffer = export_dmabuf(driver(), memory.data() + 5000, 100);
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ(buffer->offset, 5000U % 4096);
  EXPECT_EQ(fcntl(buffer->fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_F(GpuMemory, ExportIsClosedWithItsOwner) {
  const GpuBuffer memory(fake_, 4096);
  int fd = -1;
  {
    auto buffer = export_dmabuf(driver(), memory.data(), 4096);
    ASSERT_TRUE(buffer);
    fd = buffer->fd.get();
    const DmaBuf moved = std::move(*buffer);
    EXPECT_NE(fcntl(fd, F_GETFD), -1);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

TEST_F(GpuMemory, RefusedExportNamesCauseAndCure) {
  const GpuBuffer memory(fake_, 4096);
  fake_.with([](FakeCuda& cuda) { cuda.refuses_export = true; });
  const auto buffer = export_dmabuf(driver(), memory.data(), 4096);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::kSystem);
  EXPECT_THAT(buffer.error().message, HasSubstr("operation not supported"));
  EXPECT_THAT(buffer.error().message, HasSubstr("modprobe nvidia-peermem"));

  const auto old = GpuSystem::open(FAKE_CUDA_OLD).value();
  const auto never = export_dmabuf(old->driver(), memory.data(), 4096);
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code, ErrorCode::kUnavailable);
}

TEST_F(GpuMemory, FlushCallsTheDriver) {
  const auto engine = system_->engine(0).value();
  EXPECT_TRUE(engine->flush_writes());
  EXPECT_EQ(fake_.with([](FakeCuda& cuda) { return cuda.flushes; }), 1);
}

TEST(PeerMemory, EitherModuleNameIsFound) {
  namespace fs = std::filesystem;
  std::string root = (fs::temp_directory_path() / "pacecar.XXXXXX").string();
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  EXPECT_EQ(peer_memory_module(root), std::nullopt);
  fs::create_directories(fs::path(root) / "sys/module/nv_peer_mem");
  EXPECT_EQ(peer_memory_module(root), "nv_peer_mem");
  fs::create_directories(fs::path(root) / "sys/module/nvidia_peermem");
  EXPECT_EQ(peer_memory_module(root), "nvidia_peermem");
  fs::remove_all(root);
}

}  // namespace
}  // namespace pacecar::memory_test
