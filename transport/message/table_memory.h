// The ends of connections as they lie in registered memory: the table that the peer writes, and
// behind it the cells of eager messages. All places are set aside at once; what of them is not used
// takes no memory, and a place that is used again takes no more.
#pragma once

#include <memory>
#include <new>
#include <type_traits>

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
        bytes_(std::make_unique_for_overwrite<uint8_t[]>(places * place_bytes_)) {}

  // A table as good as new.
  Table* renew(size_t place) { return new (at(place)) Table(); }
  uint8_t* cells(size_t place) { return at(place) + sizeof(Table); }
  Bytes place_bytes() const { return place_bytes_; }

 private:
  static constexpr Bytes kPage = 4096;  // what is used of one place is not the next one's

  uint8_t* at(size_t place) { return bytes_.get() + place * place_bytes_; }

  Bytes place_bytes_;
  std::unique_ptr<uint8_t[]> bytes_;
};

}  // namespace pacecar
