// Operations by number. A number is the operation's for good: a peer that names one which has ended
// finds none, though its place was given to another. Bounded; pure; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace pacecar::fabric {

template <typename Operation>
class OperationTable {
 public:
  explicit OperationTable(uint32_t most) : most_(most) {}

  bool full() const { return used_ == most_; }
  uint32_t used() const { return used_; }

  // Not while it is full. The number is never 0.
  std::pair<uint64_t, Operation*> take() {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(places_.size()));
      places_.emplace_back();
    }
    const uint32_t place = free_.back();
    free_.pop_back();
    ++used_;
    Place& taken = places_[place];
    taken.used = true;
    taken.operation = Operation();
    return {uint64_t{++taken.generation} << 32 | place, &taken.operation};
  }
  // nullptr: there is none of this number.
  Operation* find(uint64_t number) {
    const uint64_t place = number & 0xffffffff;
    if (place >= places_.size()) return nullptr;
    Place& found = places_[place];
    return found.used && found.generation == number >> 32 ? &found.operation : nullptr;
  }
  void release(uint64_t number) {
    const auto place = static_cast<uint32_t>(number);
    places_[place].used = false;
    free_.push_back(place);
    --used_;
  }
  // `visit(number, operation)`: it may release that operation.
  template <typename Visit>
  void for_each(Visit visit) {
    for (uint32_t place = 0; place < places_.size(); ++place) {
      Place& at = places_[place];
      if (at.used) visit(uint64_t{at.generation} << 32 | place, at.operation);
    }
  }

 private:
  struct Place {
    Operation operation;
    uint32_t generation = 0;
    bool used = false;
  };
  std::deque<Place> places_;  // each stays where it is
  std::vector<uint32_t> free_;
  uint32_t used_ = 0;
  uint32_t most_;
};

}  // namespace pacecar::fabric
