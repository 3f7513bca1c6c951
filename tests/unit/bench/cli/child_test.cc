#include "bench/cli/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

namespace pacecar::cli::child_test {
namespace {

TEST(Child, MissingProgramIsAnError) {
  const auto child = Child::execute({"/does/not/exist"}, {});
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(child.error().message, "cannot run /does/not/exist (No such file or directory)");
}

// As much as a pipe holds where pages have 64 KiB.
TEST(Child, AllThatItHasWrittenIsReadAfterItsEnd) {
  constexpr size_t kBytes = 1 << 20;
  auto child = Child::run([] {
    const std::vector<char> bytes(kBytes, 'x');
    return fcntl(STDOUT_FILENO, F_SETPIPE_SZ, kBytes) >= 0 &&
                   write(STDOUT_FILENO, bytes.data(), kBytes) == kBytes
               ? 0
               : 1;
  });
  ASSERT_TRUE(child);
  ASSERT_EQ(child->wait().code, 0);
  child->read();
  EXPECT_EQ(child->output.size(), kBytes);
}

TEST(LastLines, BlankLinesAreSkipped) {
  EXPECT_EQ(last_lines("a\nb\n\nc\n \n", 2), "b\nc");
  EXPECT_EQ(last_lines("one", 5), "one");
  EXPECT_EQ(last_lines("", 5), "");
}

}  // namespace
}  // namespace pacecar::cli::child_test
