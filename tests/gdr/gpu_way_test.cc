// The choice of the way to GPU memory, and its description.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gdr/gpu_system.h"

namespace pacecar::gpu_way_test {
namespace {

using testing::HasSubstr;

const std::vector<Gpu> kGpus{{.dma_buf = true, .peer_memory = true},
                             {.device = 1, .dma_buf = true, .peer_memory = true}};
const std::vector<Gpu> kClosedGpus{{.dma_buf = true, .peer_memory = true}, {.peer_memory = true}};
const std::vector<Gpu> kPlainGpus{{}};
const NicReach kSoft{.software = true};
const NicReach kNone{};
const NicReach kPeer{.peer_memory = true};
const NicReach kBuf{.dma_buf = true};
const NicReach kBoth{.dma_buf = true, .peer_memory = true};

GpuChoice choose(GpuSetting setting, const NicReach& nic, const std::vector<Gpu>& gpus = kGpus) {
  return choose_gpu_way(setting, nic, std::span<const Gpu>(gpus));
}

const Result<std::span<const Gpu>> kNoDriver = fail(ErrorCode::kNotFound, "no library: install it");

TEST(GpuWay, AutoChoosesTheBestAvailableWay) {
  EXPECT_EQ(choose(GpuSetting::kAuto, kBoth).way, GpuWay::kDmaBuf);
  EXPECT_EQ(choose(GpuSetting::kAuto, kBuf).way, GpuWay::kDmaBuf);
  EXPECT_EQ(choose(GpuSetting::kAuto, kPeer).way, GpuWay::kPeerMemory);
  EXPECT_EQ(choose(GpuSetting::kAuto, kBoth, kClosedGpus).way, GpuWay::kPeerMemory);
  EXPECT_EQ(choose(GpuSetting::kAuto, kBuf, kClosedGpus).way, GpuWay::kHost);
  EXPECT_EQ(choose(GpuSetting::kAuto, kBoth, kPlainGpus).way, GpuWay::kHost);
  EXPECT_EQ(choose(GpuSetting::kAuto, kNone).way, GpuWay::kHost);
  EXPECT_EQ(choose(GpuSetting::kAuto, kSoft).way, GpuWay::kHost);
  EXPECT_EQ(choose_gpu_way(GpuSetting::kAuto, kBoth, kNoDriver).way, GpuWay::kHost);
}

TEST(GpuWay, AutoIsNeverRefused) {
  for (const NicReach& nic : {kSoft, kNone, kPeer, kBuf, kBoth}) {
    EXPECT_FALSE(choose(GpuSetting::kAuto, nic, kPlainGpus).refused);
  }
}

TEST(GpuWay, ImpossibleSettingIsRefused) {
  EXPECT_FALSE(choose(GpuSetting::kDirect, kPeer).refused);
  for (const NicReach& nic : {kSoft, kNone}) {
    const GpuChoice choice = choose(GpuSetting::kDirect, nic);
    EXPECT_EQ(choice.way, GpuWay::kHost);
    EXPECT_TRUE(choice.refused);
  }
  EXPECT_EQ(choose(GpuSetting::kStaged, kSoft).way, GpuWay::kStaged);
  EXPECT_EQ(choose(GpuSetting::kStaged, kBoth).way, GpuWay::kStaged);
  const GpuChoice staged = choose_gpu_way(GpuSetting::kStaged, kSoft, kNoDriver);
  EXPECT_EQ(staged.way, GpuWay::kHost);
  EXPECT_TRUE(staged.refused);
  EXPECT_EQ(staged.why, "no library: install it");
  EXPECT_EQ(choose(GpuSetting::kHost, kBoth).way, GpuWay::kHost);
}

TEST(GpuWay, DriverIsLoadedOnlyWhereTheChoiceDependsOnIt) {
  EXPECT_FALSE(depends_on_gpus(GpuSetting::kAuto, kSoft));
  EXPECT_FALSE(depends_on_gpus(GpuSetting::kAuto, kNone));
  EXPECT_TRUE(depends_on_gpus(GpuSetting::kAuto, kPeer));
  EXPECT_FALSE(depends_on_gpus(GpuSetting::kDirect, kSoft));
  EXPECT_TRUE(depends_on_gpus(GpuSetting::kStaged, kSoft));
  EXPECT_FALSE(depends_on_gpus(GpuSetting::kHost, kBoth));
}

TEST(GpuWay, ChoiceIsDescribedInOneSentence) {
  EXPECT_EQ(describe(choose(GpuSetting::kAuto, kSoft)),
            "GPU memory through host buffers: a software NIC cannot reach the GPU");
  EXPECT_THAT(describe(choose(GpuSetting::kAuto, kBuf)), HasSubstr("direct by dma-buf"));
  EXPECT_THAT(describe(choose(GpuSetting::kAuto, kPeer)), HasSubstr("direct by nvidia_peermem"));
  EXPECT_THAT(describe(choose(GpuSetting::kStaged, kSoft)), HasSubstr("staged through pinned"));
  EXPECT_THAT(describe(choose(GpuSetting::kAuto, kNone)), HasSubstr("modprobe nvidia-peermem"));
}

}  // namespace
}  // namespace pacecar::gpu_way_test
