// The main() of every test program. Property tests draw the same few cases each time: all of them
// (rapidcheck's 100) with TESTS_ALL=1, new ones where RC_PARAMS is set, be it to nothing.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/draws.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  setenv("RC_PARAMS", pacecar::test::tests_all() ? "seed=20" : "seed=20 max_success=25", 0);
  return RUN_ALL_TESTS();
}
