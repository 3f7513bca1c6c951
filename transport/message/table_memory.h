// One end of a connection as it lies in registered memory: the table that the peer writes, and
// behind it the cells of eager messages, which take no memory until they are used.
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
  explicit TableMemory(Bytes cells)
      : size_(sizeof(Table) + cells),
        bytes_(std::make_unique_for_overwrite<uint8_t[]>(size_)),
        table_(new (bytes_.get()) Table()) {}

  Table* operator->() const { return table_; }
  Table& operator*() const { return *table_; }
  uint8_t* cells() const { return bytes_.get() + sizeof(Table); }
  Bytes size() const { return size_; }

 private:
  Bytes size_;
  std::unique_ptr<uint8_t[]> bytes_;
  Table* table_;
};

}  // namespace pacecar
