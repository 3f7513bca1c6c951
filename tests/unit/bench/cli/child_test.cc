#include "bench/cli/child.h"

#include <gtest/gtest.h>

namespace pacecar::cli::child_test {
namespace {

TEST(Child, MissingProgramIsAnError) {
  const auto child = Child::execute({"/does/not/exist"}, {});
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(child.error().message, "cannot run /does/not/exist (No such file or directory)");
}

TEST(LastLines, BlankLinesAreSkipped) {
  EXPECT_EQ(last_lines("a\nb\n\nc\n \n", 2), "b\nc");
  EXPECT_EQ(last_lines("one", 5), "one");
  EXPECT_EQ(last_lines("", 5), "");
}

}  // namespace
}  // namespace pacecar::cli::child_test
