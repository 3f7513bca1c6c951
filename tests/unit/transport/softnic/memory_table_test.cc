// MemoryTable: which keys and remote addresses regions get, and which memory no key opens. The
// property test checks that the table behaves as a map.
#include "transport/softnic/memory_table.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace pacecar::memory_table_test {
namespace {

// A source of the test's own random numbers.
struct Drawn {
  std::deque<uint32_t> numbers;
  RandomSource source() { return {next, this}; }

 private:
  static uint32_t next(void* context) {
    auto& numbers = static_cast<Drawn*>(context)->numbers;
    const uint32_t number = numbers.front();
    if (numbers.size() > 1) numbers.pop_front();
    return number;
  }
};

alignas(8) std::array<uint8_t, 64> memory_of_table;

TEST(MemoryTable, KeyIsAnyFreeNumberButZero) {
  Drawn drawn{{0, 5, 5, 0, 5, 1}};
  MemoryTable table(4, drawn.source(), false);
  const auto add = [&] { return table.add(memory_of_table.data(), 8, Access::kLocalRead)->key; };
  EXPECT_EQ(add(), 5U);
  EXPECT_EQ(add(), 1U);
}

// 42 of its bits are random, so no peer guesses it.
TEST(MemoryTable, RemoteBaseIsRandomAboveTwoMebibytes) {
  const auto local = reinterpret_cast<uint64_t>(memory_of_table.data()) % kRemoteAlignment;
  for (unsigned bit = 0; bit < 64; ++bit) {
    const uint64_t random = uint64_t{1} << bit;
    Drawn drawn{{static_cast<uint32_t>(random >> 32), static_cast<uint32_t>(random), 9}};
    MemoryTable table(4, drawn.source());
    const auto region = table.add(memory_of_table.data(), 8, Access::kRemoteAll).value();
    const bool counts = bit >= 21 && bit < 63;
    EXPECT_EQ(region.remote_address, (counts ? random : 0) | local) << bit;
  }
}

TEST(MemoryTable, EmptyAndWrappingRangesAreRefused) {
  Drawn drawn{{1, 2, 3, 4, 5, 6, 7, 8, 9}};
  MemoryTable table(8, drawn.source(), false);
  const auto takes = [&](uint64_t address, size_t length, uint64_t remote) {
    return table.add_as(reinterpret_cast<void*>(address), length, Access::kLocalRead, remote)
        .has_value();
  };
  EXPECT_FALSE(takes(0, 8, 64));
  EXPECT_FALSE(takes(64, 0, 64));
  EXPECT_FALSE(takes(~uint64_t{6}, 8, 64));
  EXPECT_FALSE(takes(64, 8, ~uint64_t{6}));
  EXPECT_TRUE(takes(~uint64_t{15}, 8, ~uint64_t{15}));
  EXPECT_TRUE(takes(64, uint64_t{1} << 63, 0));
  EXPECT_FALSE(takes(64, (uint64_t{1} << 63) + 1, 0));
  EXPECT_EQ(table.size(), 2U);
}

// A search ends only at a free slot, so a full table needs one, too.
TEST(MemoryTable, FullTableDoesNotFindUnknownKeys) {
  Drawn drawn{{0x10, 0x20, 0x30, 0x40, 0x50}};
  MemoryTable table(4, drawn.source(), false);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(table.add(memory_of_table.data(), 8, Access::kRemoteAll));
  }
  EXPECT_FALSE(table.add(memory_of_table.data(), 8, Access::kRemoteAll));
  EXPECT_FALSE(table.covers(0x50, memory_of_table.data(), 8));
  EXPECT_FALSE(table.remove(0x50));
}

TEST(MemoryTable, EmptyTableGivesNoAccessWithKeyZero) {
  Drawn drawn{{1}};
  const MemoryTable table(4, drawn.source(), false);
  EXPECT_FALSE(table.covers(0, nullptr, 0));
  EXPECT_FALSE(table.owner_may_write(0, nullptr, 0));
  EXPECT_EQ(table.writable(0, 0, 0), nullptr);
  EXPECT_EQ(table.readable(0, 0, 0), nullptr);
  EXPECT_EQ(table.atomic_word(0, 0), nullptr);
}

TEST(MemoryTable, RangeEndsWithItsRegion) {
  Drawn drawn{{1, 2}};
  MemoryTable table(4, drawn.source(), false);
  uint8_t* const begin = memory_of_table.data();
  const auto writable = table.add_as(begin, 32, Access::kRemoteWrite, 0x1000).value();
  const auto readable = table.add_as(begin, 32, Access::kRemoteRead, 0x1000).value();
  const MemoryTable::Range range = table.writable_range(writable.key);
  EXPECT_EQ(range.writable(0x1000, 32), begin);
  EXPECT_EQ(range.writable(0x1010, 16), begin + 16);
  EXPECT_EQ(range.writable(0x1010, 17), nullptr);
  EXPECT_EQ(range.writable(0xFFF, 2), nullptr);
  EXPECT_EQ(range.writable(0x1000, 33), nullptr);
  EXPECT_EQ(table.writable_range(readable.key).writable(0x1000, 1), nullptr);
}

TEST(MemoryTable, KeyIsUsableInItsDomainAndByQueuePairsWithoutOne) {
  Drawn drawn{{1, 2}};
  MemoryTable table(4, drawn.source(), false);
  const auto add = [&](DomainId domain) {
    return table.add_as(memory_of_table.data(), 8, Access::kRemoteAll, 0x1000, domain)->key;
  };
  const uint32_t of_none = add(kNoDomain);
  const uint32_t of_two = add(2);
  constexpr QueuePairId kAnybody = 7;
  EXPECT_TRUE(table.usable(of_none, kAnybody, 3));
  EXPECT_TRUE(table.usable(of_none, kAnybody, kNoDomain));
  EXPECT_TRUE(table.usable(of_two, kAnybody, kNoDomain));
  EXPECT_TRUE(table.usable(of_two, kAnybody, 2));
  EXPECT_FALSE(table.usable(of_two, kAnybody, 3));
}

TEST(MemoryTable, AtomicWordMustBeAlignedLocallyAndRemotely) {
  Drawn drawn{{1, 2, 3, 4}};
  MemoryTable table(4, drawn.source(), false);
  uint8_t* const begin = memory_of_table.data();
  const auto add = [&](uint8_t* address, uint64_t remote) {
    return table.add_as(address, 32, Access::kRemoteAtomic, remote)->key;
  };
  const uint32_t both = add(begin, 0x1000);
  EXPECT_EQ(reinterpret_cast<uint8_t*>(table.atomic_word(both, 0x1008)), begin + 8);
  EXPECT_EQ(table.atomic_word(both, 0x1004), nullptr);
  EXPECT_EQ(table.atomic_word(both, 0x1018 + 8), nullptr) << "behind the region";
  EXPECT_EQ(table.atomic_word(add(begin, 0x1004), 0x100C), nullptr)
      << "not aligned in the peer's addresses";
  EXPECT_EQ(table.atomic_word(add(begin + 4, 0x1000), 0x1008), nullptr)
      << "not aligned in local memory";
}

}  // namespace
}  // namespace pacecar::memory_table_test
