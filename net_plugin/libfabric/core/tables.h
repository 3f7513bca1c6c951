// What an endpoint counts and lists: addresses, outstanding operations, pieces of memory. Pure; one
// thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pacecar::fabric {

// The bytes of a socket address, with unused fields zeroed, so that equal addresses compare equal.
using Name = std::string;

// Address vector: addresses of endpoints by number, and numbers by address. The number of a removed
// address is reused.
class Names {
 public:
  // A name that is added twice has two numbers; number_of() returns the older one.
  uint64_t add(const Name& name) {
    uint64_t number = names_.size();
    if (!free_.empty()) {
      number = free_.back();
      free_.pop_back();
      names_[number] = name;
    } else {
      names_.push_back(name);
    }
    numbers_.emplace(name, number);
    return number;
  }
  // False: no name has this number.
  bool remove(uint64_t number) {
    if (find(number) == nullptr) return false;
    auto [at, end] = numbers_.equal_range(*names_[number]);
    while (at != end && at->second != number) ++at;
    numbers_.erase(at);
    names_[number].reset();
    free_.push_back(number);
    return true;
  }
  const Name* find(uint64_t number) const {
    return number < names_.size() && names_[number] ? &*names_[number] : nullptr;
  }
  std::optional<uint64_t> number_of(const Name& name) const {
    const auto at = numbers_.find(name);
    return at == numbers_.end() ? std::nullopt : std::optional(at->second);
  }

 private:
  std::vector<std::optional<Name>> names_;
  std::vector<uint64_t> free_;
  std::multimap<Name, uint64_t> numbers_;
};

// Outstanding operations by number. A number has the index of an entry and the generation of its
// use, so it is never reused: the number of a finished operation finds nothing, even after its
// entry was reused. Bounded.
template <typename Operation>
class OperationTable {
 public:
  explicit OperationTable(uint32_t capacity) : capacity_(capacity) {}

  bool full() const { return used_ == capacity_; }

  // Not while it is full. The number is never 0.
  std::pair<uint64_t, Operation*> take() {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(entries_.size()));
      entries_.emplace_back();
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    ++used_;
    Entry& taken = entries_[index];
    taken.used = true;
    taken.operation = Operation();
    return {uint64_t{++taken.generation} << 32 | index, &taken.operation};
  }
  // nullptr: no outstanding operation has this number.
  Operation* find(uint64_t number) {
    const uint64_t index = number & 0xffffffff;
    if (index >= entries_.size()) return nullptr;
    Entry& found = entries_[index];
    return found.used && found.generation == number >> 32 ? &found.operation : nullptr;
  }
  void release(uint64_t number) {
    const auto index = static_cast<uint32_t>(number);
    entries_[index].used = false;
    free_.push_back(index);
    --used_;
  }
  // `visit(number, operation)`: it may release that operation.
  template <typename Visit>
  void for_each(Visit visit) {
    for (uint32_t index = 0; index < entries_.size(); ++index) {
      Entry& at = entries_[index];
      if (at.used) visit(uint64_t{at.generation} << 32 | index, at.operation);
    }
  }

 private:
  struct Entry {
    Operation operation;
    uint32_t generation = 0;
    bool used = false;
  };
  std::deque<Entry> entries_;  // a deque: entries do not move
  std::vector<uint32_t> free_;
  uint32_t used_ = 0;
  uint32_t capacity_;
};

struct Piece {
  uint8_t* data = nullptr;
  size_t size = 0;
};

inline size_t total(std::span<const Piece> pieces) {
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.size;
  return bytes;
}

// Calls move(i, i_offset, j, j_offset, bytes), in order, for each run of bytes that is within one
// piece on both sides. Stops at the end of the shorter side. from_size(i) and to_size(j): sizes.
template <typename FromSize, typename ToSize, typename Move>
void pair_pieces(size_t from_count, FromSize from_size, size_t to_count, ToSize to_size,
                 Move move) {
  size_t from = 0;
  size_t to = 0;
  uint64_t from_offset = 0;
  uint64_t to_offset = 0;
  while (from < from_count && to < to_count) {
    const uint64_t bytes =
        std::min<uint64_t>(from_size(from) - from_offset, to_size(to) - to_offset);
    if (bytes > 0) move(from, from_offset, to, to_offset, bytes);
    from_offset += bytes;
    to_offset += bytes;
    if (from_offset == from_size(from)) {
      ++from;
      from_offset = 0;
    }
    if (to_offset == to_size(to)) {
      ++to;
      to_offset = 0;
    }
  }
}

}  // namespace pacecar::fabric
