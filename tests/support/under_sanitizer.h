// Fewer rounds under the thread sanitizer, which makes each round take ten times as long and finds
// races in a few rounds. Other builds run all rounds.
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
