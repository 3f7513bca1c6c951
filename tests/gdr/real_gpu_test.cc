// Copies, pointer attributes and exports on a real GPU. Skipped where there is none.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <thread>

#include "gdr/gpu_memory.h"
#include "gdr/gpu_system.h"

namespace pacecar::real_gpu_test {
namespace {

constexpr size_t kBytes = 3 << 20;

class RealGpu : public testing::Test {
 protected:
  void SetUp() override {
    auto system = GpuSystem::open();
    if (!system) GTEST_SKIP() << system.error().message;
    system_ = *system;
    const auto allocate = call<int(cuda::DevicePointer*, size_t)>("cuMemAlloc_v2");
    if (allocate == nullptr) GTEST_SKIP() << "this is not NVIDIA's driver";
    engine_ = system_->engine(0).value();
    current_.emplace(*engine_);
    ASSERT_EQ(allocate(&memory_, kBytes), 0);
  }
  void TearDown() override {
    if (memory_ != 0) call<int(cuda::DevicePointer)>("cuMemFree_v2")(memory_);
  }
  // A function of the driver that only this test uses.
  template <typename Function>
  static Function* call(const char* name) {
    return reinterpret_cast<Function*>(
        dlsym(dlopen(CudaDriver::kLibrary, RTLD_NOW | RTLD_LOCAL), name));
  }
  void copy(StagedRange& range, CopyWay way, const PinnedMemory& pinned) {
    CopyEvent event;
    ASSERT_TRUE(range.copy(way, data(), pinned.bytes().data(), kBytes));
    ASSERT_TRUE(event.record(engine_, way));
    while (!event.done().value()) std::this_thread::yield();
  }
  void* data() const { return reinterpret_cast<void*>(memory_); }

  std::shared_ptr<GpuSystem> system_;
  std::shared_ptr<const CopyEngine> engine_;
  std::optional<CopyEngine::Current> current_;
  cuda::DevicePointer memory_ = 0;
};

TEST_F(RealGpu, CopiesBothWays) {
  const auto pinned = PinnedMemory::allocate(engine_, kBytes).value();
  const std::span<uint8_t> host = pinned->bytes();
  StagedRange range(engine_, data(), kBytes);
  std::iota(host.begin(), host.end(), uint8_t{1});
  const std::vector<uint8_t> before(host.begin(), host.end());
  copy(range, CopyWay::kToDevice, *pinned);
  std::ranges::fill(host, 0);
  copy(range, CopyWay::kToHost, *pinned);
  EXPECT_TRUE(std::ranges::equal(host, before));
}

TEST_F(RealGpu, DriverDescribesTheAllocation) {
  EXPECT_EQ(system_->current_device(), 0);
  const auto kind = kind_of_gpu_range(system_->driver(), data(), kBytes);
  ASSERT_TRUE(kind) << kind.error().message;
  EXPECT_EQ(kind->base, memory_);
  EXPECT_GE(kind->size, kBytes);
  EXPECT_FALSE(kind->managed);
  const int host = 0;
  EXPECT_FALSE(kind_of_pointer(system_->driver(), &host)->cuda);
  EXPECT_EQ(system_->gpus()[0].pci_bus_id.size(), std::string("0000:3b:00.0").size());
}

TEST_F(RealGpu, ExportSucceedsIfTheGpuReportsDmaBuf) {
  const auto exported = export_dmabuf(system_->driver(), data(), kBytes);
  EXPECT_EQ(exported.has_value(), system_->gpus()[0].dma_buf);
  // Both outcomes are valid; --gtest_output=json: shows which it was.
  RecordProperty("said", exported ? "the GPU's memory is exported" : exported.error().message);
}

}  // namespace
}  // namespace pacecar::real_gpu_test
