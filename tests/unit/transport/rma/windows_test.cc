// The windows of a group, of which the test plays the other rank.
#include "transport/rma/windows.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/joining_process.h"

namespace pacecar::rma::windows_test {
namespace {

TEST(RmaWindows, AWindowThatAPeerHasSharedAgainOutlivesItsFirstShare) {
  const auto process =
      std::make_shared<test::Process>(std::vector<std::vector<test::Networks>>{{{"soft"}}});
  Windows windows(std::shared_ptr<Context>(process, &process->context()), 0, 2);
  std::array<uint8_t, 64> memory{};
  const Place own =
      windows.register_own({.address = memory.data(), .length = memory.size()}).value();
  const Place theirs{.id = 7};
  ASSERT_TRUE(windows.announce(0, own) && windows.announce(1, theirs));
  SharedWindow* const shared = windows.take_announced(0, own);
  ASSERT_TRUE(windows.announce(1, theirs)) << "we have not shared ours again yet";
  const auto released = windows.unshare(shared, 0);
  ASSERT_TRUE(released);
  windows.deregister(*released);
  EXPECT_NE(windows.find(1, theirs.id), nullptr);
  EXPECT_EQ(windows.find(0, own.id), nullptr);
}

}  // namespace
}  // namespace pacecar::rma::windows_test
