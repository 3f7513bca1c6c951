// What a build without DPDK says to the name of a DPDK device: this program has its part of the
// engine in place of the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/engine/open_nic.h"

namespace pacecar {
namespace {

TEST(WithoutDpdk, DpdkDeviceIsRefusedInOneSentenceWithItsCure) {
  const auto chosen = choose_nics("soft:dpdk:net_memif0,role=server", list_nics());
  ASSERT_TRUE(chosen) << chosen.error().message;
  const auto nic = open_nic(chosen->front().front(), Params{}, {});
  ASSERT_FALSE(nic);
  EXPECT_EQ(nic.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(nic.error().message,
              testing::HasSubstr("this build has no DPDK: install libdpdk-dev and build again"));
}

}  // namespace
}  // namespace pacecar
