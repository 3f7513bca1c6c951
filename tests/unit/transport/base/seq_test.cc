#include "transport/base/seq.h"

#include <gtest/gtest.h>

namespace pacecar::seq_test {
namespace {

TEST(ExpandPsn, NearestPsnIsChosen) {
  EXPECT_EQ(expand_psn(0, 0), 0U);
  EXPECT_EQ(expand_psn(0x123456789, 0x456789), 0x123456789U);
  EXPECT_EQ(expand_psn(0x0ffffff, 0x000001), 0x1000001U);  // ahead, over the wrap
  EXPECT_EQ(expand_psn(0x1000001, 0xffffff), 0x0ffffffU);  // behind, over the wrap
}

TEST(ExpandPsn, OlderOfTwoEquallyNearPsnsIsChosen) {
  EXPECT_EQ(expand_psn(0x1800000, 0x000000), 0x1000000U);
  EXPECT_EQ(expand_psn(0x17fffff, 0xffffff), 0x0ffffffU);
}

TEST(ExpandPsn, PsnIsNeverBelowZero) {
  EXPECT_EQ(expand_psn(5, 0xffffff), 0xffffffU);
  EXPECT_EQ(expand_psn(0x7fffff, 0xffffff), 0xffffffU);
}

TEST(ExpandPsn, BitsAboveTheWireFieldAreIgnored) {
  EXPECT_EQ(expand_psn(0x1000000, 0xff000002), 0x1000002U);
}

}  // namespace
}  // namespace pacecar::seq_test
