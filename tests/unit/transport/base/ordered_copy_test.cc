
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "transport/base/polled_memory.h"

namespace pacecar::ordered_copy_test {
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

// Round n stores n in every word.
TEST(OrderedCopy, PollingReaderSeesWholeWordsInOrder) {
  constexpr uint64_t kRounds = 10'000;
  alignas(64) std::array<uint64_t, 24> place{};  // a line of 128 bytes, and 8 words
  std::jthread writer([&] {
    for (uint64_t round = 1; round <= kRounds; ++round) {
      std::array<uint64_t, place.size()> words;
      words.fill(round);
      ordered_copy(reinterpret_cast<uint8_t*>(place.data()),
                   reinterpret_cast<const uint8_t*>(words.data()), sizeof words);
    }
  });
  for (uint64_t last = 0; last < kRounds;) {
    last = load_polled(place.back());
    for (const uint64_t& word : place) {
      const uint64_t seen = load_polled(word);
      ASSERT_TRUE(last <= seen && seen <= kRounds) << last << " " << seen;
    }
  }
}

}  // namespace
}  // namespace pacecar::ordered_copy_test
