// TableMemory: the ends of connections in memory that is theirs alone.
#include "transport/message/table_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "transport/message/control_words.h"

namespace pacecar {
namespace {

constexpr Bytes kCells = 5000;

TEST(TableMemory, APlaceThatIsUsedAgainIsAsGoodAsNew) {
  TableMemory<SendTable> tables(2, kCells);
  SendTable* table = tables.renew(0);
  const SendTable fresh = *table;
  EXPECT_EQ(fresh.slots[0].sequence, 0U);
  std::memset(static_cast<void*>(table), 0xFF, sizeof *table);
  tables.renew(1);  // keeps the block
  tables.give_back(0);
  EXPECT_EQ(tables.renew(0), table);
  EXPECT_EQ(std::memcmp(table, &fresh, sizeof fresh), 0);
  tables.give_back(0);
  tables.give_back(1);
  EXPECT_EQ(std::memcmp(tables.renew(0), &fresh, sizeof fresh), 0) << "in a new block";
}

TEST(TableMemory, APlaceHasWholePagesAndNoMore) {
  constexpr Bytes kPage = 4096;
  const Bytes rest = kPage - sizeof(SendTable) % kPage;
  const Bytes exact = TableMemory<SendTable>(1, rest).place_bytes();
  EXPECT_EQ(exact, sizeof(SendTable) + rest);
  EXPECT_EQ(TableMemory<SendTable>(1, rest + 1).place_bytes(), exact + kPage);
  EXPECT_EQ(TableMemory<SendTable>(1, 0).place_bytes(), exact);
}

TEST(TableMemory, PlacesDoNotOverlap) {
  constexpr size_t kPlaces = 20;  // several blocks
  TableMemory<SendTable> tables(kPlaces, kCells);
  std::vector<SendTable*> table;
  for (size_t i = 0; i < kPlaces; ++i) {
    table.push_back(tables.renew(i));
    table[i]->own_close = i;
    std::memset(tables.cells(i), static_cast<int>(i), kCells);
  }
  for (size_t i = 0; i < kPlaces; ++i) {
    EXPECT_EQ(table[i]->own_close, i);
    EXPECT_EQ(table[i]->slots[0].sequence, 0U);
    EXPECT_EQ(tables.cells(i)[0], i);
    EXPECT_EQ(tables.cells(i)[kCells - 1], i);
  }
}

}  // namespace
}  // namespace pacecar
