// WaitLimit: how long the libfabric NIC waits for its peers, on hosts that stall.
#include "transport/ofi/wait_limit.h"

#include <gtest/gtest.h>

namespace pacecar::wait_limit_test {
namespace {

constexpr Duration kLimit = Duration::from_ms(500);

// The length of a wait whose turns take `turn`.
Duration wait_of(Duration turn) {
  WaitLimit wait(kLimit);
  Duration waited;
  while (wait.allows(waited)) waited = waited + turn;
  return waited;
}

TEST(OfiWaitLimit, LastsForItsLimitWhereTurnsAreShort) {
  EXPECT_EQ(wait_of(Duration::from_us(100)), kLimit + Duration::from_us(100));
}

TEST(OfiWaitLimit, LongTurnsOfAStallingHostCountOnlyInPart) {
  EXPECT_EQ(wait_of(Duration::from_ms(20)), Duration::from_ms(20) * 251);
}

TEST(OfiWaitLimit, WaitIsBoundedEvenIfTheHostStallsInEveryTurn) {
  const Duration turn = Duration::from_ms(700);
  EXPECT_LE(wait_of(turn), kLimit * 20 + turn);
}

}  // namespace
}  // namespace pacecar::wait_limit_test
