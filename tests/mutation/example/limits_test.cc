#include <gtest/gtest.h>
#include <product/limits.h>

namespace example {
namespace {

TEST(Limits, Limited) {
  EXPECT_EQ(limited(101), 100);
  EXPECT_EQ(limited(100), 100);
  EXPECT_EQ(limited(99), 99);
}

TEST(Limits, IsLimited) {
  EXPECT_TRUE(is_limited(101));
  EXPECT_FALSE(is_limited(0));
  EXPECT_FALSE(is_limited(99));
}

TEST(Limits, Counter) {
  Counter counter;
  counter.add(1);
  EXPECT_EQ(counter.sum(), 1);
}

}  // namespace
}  // namespace example
