#include "transport/base/ordered_copy.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <vector>

namespace pacecar {
namespace {

TEST(OrderedCopy, CopiesAsMemcpyDoes) {
  constexpr size_t kLongest = 300;
  constexpr size_t kAlignments = 64;
  std::vector<uint8_t> source(kLongest + 8);
  std::iota(source.begin(), source.end(), uint8_t{1});
  for (size_t from = 0; from < 8; ++from) {
    for (size_t to = 0; to < kAlignments; ++to) {
      for (size_t length = 0; length <= kLongest; ++length) {
        alignas(kAlignments) std::array<uint8_t, kLongest + 2 * kAlignments> actual{};
        auto expected = actual;
        ordered_copy(actual.data() + to, source.data() + from, length);
        std::memcpy(expected.data() + to, source.data() + from, length);
        ASSERT_EQ(actual, expected) << from << " " << to << " " << length;
      }
    }
  }
}

}  // namespace
}  // namespace pacecar
