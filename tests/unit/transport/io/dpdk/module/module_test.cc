// Unusable modules. integration/back_ends_test.py has usable ones, and a host without DPDK.
#include "transport/io/dpdk/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pacecar::module_test {
namespace {

using testing::HasSubstr;

TEST(DpdkModule, MissingModuleErrorNamesThePackageToInstall) {
  const auto module = load_dpdk_module("libpacecar-nothing.so");
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(module.error().message, HasSubstr("DPDK devices need libpacecar-nothing.so, which"));
  EXPECT_THAT(module.error().message, HasSubstr("install it from the same build (pacecar-dpdk)"));
}

TEST(DpdkModule, ModuleOfAnotherBuildIsRefused) {
  const auto module = load_dpdk_module(PACECAR_FOREIGN_MODULE);
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(module.error().message, HasSubstr("is of another build of Pacecar: install"));
}

TEST(DpdkModule, LibraryThatIsNoModuleIsRefused) {
  const auto module = load_dpdk_module("libm.so.6");
  ASSERT_FALSE(module);
  EXPECT_THAT(module.error().message, HasSubstr("is of another build of Pacecar: install"));
}

}  // namespace
}  // namespace pacecar::module_test
