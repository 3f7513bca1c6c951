// Outstanding operations by number: the index of an entry and the generation of its use. So that of
// a finished operation finds nothing, even after its entry was reused. Bounded; pure; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace pacecar::fabric {

template <typename Operation>
class OperationTable {
 public:
  explicit OperationTable(uint32_t capacity) : capacity_(capacity) {}

  bool full() const { return used_ >= capacity_; }

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

}  // namespace pacecar::fabric
