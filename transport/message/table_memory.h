// Registered memory of connection ends: the table that the peer writes, and behind it the cells of
// eager messages. Memory is allocated for up to 8 places at a time and freed when none of them is
// in use. Pages that are never touched take none.
#pragma once

#include <algorithm>
#include <new>
#include <type_traits>
#include <vector>

#include "transport/base/fresh_pages.h"
#include "transport/base/units.h"

namespace pacecar {

// A new table is all zero.
template <typename Table>
class TableMemory {
  static_assert(std::is_trivially_destructible_v<Table>);

 public:
  // For `places` connections with `cells` bytes of cells each.
  TableMemory(size_t places, Bytes cells)
      : place_bytes_((sizeof(Table) + cells + kPage - 1) / kPage * kPage),
        block_places_(std::min(places, kMaxBlockPlaces)),
        blocks_((places + kMaxBlockPlaces - 1) / kMaxBlockPlaces) {}

  // A table as good as new.
  Table* renew(size_t place) {
    Block& block = blocks_[place / kMaxBlockPlaces];
    if (block.used == 0) block.pages = make_fresh_pages(block_places_ * place_bytes_);
    ++block.used;
    const uint32_t bit = 1U << place % kMaxBlockPlaces;
    if ((block.touched & bit) != 0) return new (at(place)) Table();
    block.touched |= bit;
    return reinterpret_cast<Table*>(at(place));  // fresh pages are zero; do not touch them
  }
  // Frees a place that renew() has given; nobody reads or writes it any more.
  void give_back(size_t place) {
    Block& block = blocks_[place / kMaxBlockPlaces];
    if (--block.used == 0) block = Block();
  }
  // Of a place that is in use.
  uint8_t* cells(size_t place) { return at(place) + sizeof(Table); }
  Bytes place_bytes() const { return place_bytes_; }

 private:
  static constexpr Bytes kPage = 4096;  // places share no page
  static constexpr size_t kMaxBlockPlaces = 8;
  struct Block {
    FreshPages pages;
    uint32_t used = 0;     // places
    uint32_t touched = 0;  // bit per place: has been used since the block was allocated
  };

  uint8_t* at(size_t place) {
    return blocks_[place / kMaxBlockPlaces].pages.get() + place % kMaxBlockPlaces * place_bytes_;
  }

  Bytes place_bytes_;
  size_t block_places_;
  std::vector<Block> blocks_;
};

}  // namespace pacecar
