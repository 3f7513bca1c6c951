// Memory that can be registered, and memory that cannot.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include "tests/support/own_verbs_device.h"
#include "transport/base/fresh_pages.h"

namespace pacecar::test::memory_test {
namespace {

constexpr size_t kPage = 4096;

class VerbsDeviceMemory : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(device_.context(), nullptr);
    pd_ = ibv_alloc_pd(device_.context());
  }
  ~VerbsDeviceMemory() override {
    if (pd_ == nullptr) return;
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
  }
  // 0, or the error.
  int register_pages(size_t offset, size_t length, int access) {
    ibv_mr* const region = ibv_reg_mr(pd_, memory_.data() + offset, length, access);
    if (region == nullptr) return errno;
    EXPECT_EQ(ibv_dereg_mr(region), 0);
    return 0;
  }

  OwnVerbsDevice device_;
  ibv_pd* pd_ = nullptr;
  OwnPages<uint8_t> memory_{4 * kPage};
};

TEST_F(VerbsDeviceMemory, MemoryWithAHoleIsRefused) {
  ASSERT_EQ(munmap(memory_.data() + 2 * kPage, kPage), 0);
  EXPECT_EQ(register_pages(100, 2 * kPage - 100, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(register_pages(100, 2 * kPage - 99, IBV_ACCESS_LOCAL_WRITE), EFAULT);
  EXPECT_EQ(register_pages(0, 4 * kPage, 0), EFAULT);
  EXPECT_EQ(register_pages(2 * kPage, kPage, 0), EFAULT);
}

TEST_F(VerbsDeviceMemory, ReadOnlyMemoryIsRegisteredForReadingOnly) {
  ASSERT_EQ(mprotect(memory_.data(), kPage, PROT_READ), 0);
  EXPECT_EQ(register_pages(0, 4 * kPage, IBV_ACCESS_LOCAL_WRITE), EFAULT);
  EXPECT_EQ(register_pages(0, 4 * kPage, IBV_ACCESS_REMOTE_READ), 0);
  ASSERT_EQ(mprotect(memory_.data(), kPage, PROT_NONE), 0);
  EXPECT_EQ(register_pages(0, 4 * kPage, IBV_ACCESS_REMOTE_READ), EFAULT);
}

}  // namespace
}  // namespace pacecar::test::memory_test
