// The ends of connections as they lie in registered memory: the table that the peer writes, and
// behind it the cells of eager messages. Memory is set aside for a few places at a time, once; what
// of a place is not used takes none, and a place that is used again takes no more.
#pragma once

#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "transport/base/units.h"

namespace pacecar {

template <typename Table>
class TableMemory {
  static_assert(std::is_trivially_destructible_v<Table>);
  static_assert(alignof(Table) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

 public:
  // For `places` connections with so many bytes of cells each.
  TableMemory(size_t places, Bytes cells)
      : place_bytes_((sizeof(Table) + cells + kPage - 1) / kPage * kPage),
        blocks_((places + kPlaces - 1) / kPlaces) {}

  // A table as good as new.
  Table* renew(size_t place) {
    auto& block = blocks_[place / kPlaces];
    if (!block) block = std::make_unique_for_overwrite<uint8_t[]>(kPlaces * place_bytes_);
    return new (at(place)) Table();
  }
  // Of a place that has been renewed.
  uint8_t* cells(size_t place) { return at(place) + sizeof(Table); }
  Bytes place_bytes() const { return place_bytes_; }

 private:
  static constexpr Bytes kPage = 4096;  // what is used of one place is not the next one's
  static constexpr size_t kPlaces = 8;  // of a block

  uint8_t* at(size_t place) {
    return blocks_[place / kPlaces].get() + place % kPlaces * place_bytes_;
  }

  Bytes place_bytes_;
  std::vector<std::unique_ptr<uint8_t[]>> blocks_;
};

}  // namespace pacecar
