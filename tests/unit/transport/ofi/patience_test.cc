// Patience: how long the libfabric NIC waits for its peers, on hosts that stall.
#include <gtest/gtest.h>

#include "transport/ofi/patience.h"

namespace pacecar::patience_test {
namespace {

constexpr Duration kLimit = Duration::from_ms(500);

// The length of a wait whose turns take `turn`.
Duration wait_of(Duration turn) {
  Patience patience(kLimit);
  Duration waited;
  while (patience.lasts(waited)) waited = waited + turn;
  return waited;
}

TEST(OfiPatience, LastsForItsLimitWhereTurnsAreShort) {
  EXPECT_EQ(wait_of(Duration::from_us(100)), kLimit + Duration::from_us(100));
}

TEST(OfiPatience, LongTurnsOfAStallingHostCountOnlyInPart) {
  EXPECT_EQ(wait_of(Duration::from_ms(20)), Duration::from_ms(20) * 251);
}

TEST(OfiPatience, WaitIsBoundedEvenIfTheHostStallsInEveryTurn) {
  const Duration turn = Duration::from_ms(700);
  EXPECT_LE(wait_of(turn), kLimit * 20 + turn);
}

}  // namespace
}  // namespace pacecar::patience_test
