// The error of a build without libfabric for the name of a libfabric NIC: this program is linked
// with the engine's replacement for open_ofi.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/engine/open/back_ends.h"
#include "transport/engine/open/open_kinds.h"

namespace pacecar::without_ofi_test {
namespace {

TEST(WithoutOfi, ProviderIsRefusedWithACure) {
  const auto chosen = choose_nics("ofi:tcp:eth0", list_nics());
  ASSERT_TRUE(chosen) << chosen.error().message;
  const auto nic = open_nic(chosen->front().front(), Params{}, {});
  ASSERT_FALSE(nic);
  EXPECT_EQ(nic.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(
      nic.error().message,
      testing::HasSubstr("this build has no libfabric: install libfabric-dev and build again"));
  const auto providers = list_fabric_providers();
  ASSERT_FALSE(providers);
  EXPECT_EQ(providers.error().message, nic.error().message);
}

}  // namespace
}  // namespace pacecar::without_ofi_test
