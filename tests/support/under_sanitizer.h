// What tests of many rounds do where the thread sanitizer makes each round take ten times as long:
// fewer, for what it sees it sees in a few. The other builds do all.
#pragma once

#include <cstddef>

namespace pacecar::test {

#ifdef __SANITIZE_THREAD__
constexpr size_t kFewer = 10;
#else
constexpr size_t kFewer = 1;
#endif

constexpr size_t rounds(size_t count) { return count / kFewer; }

}  // namespace pacecar::test
