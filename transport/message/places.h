// Things by number, up to a bound. The number that was freed last is used next, so that few things
// take little memory. Memory grows only when a thing is added.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace pacecar {

template <typename T>
class Places {
 public:
  explicit Places(size_t most) : most_(most) {}

  bool full() const { return free_.empty() && things_.size() == most_; }
  // The number of the thing that is added next. Not when full.
  uint32_t next() const {
    return free_.empty() ? static_cast<uint32_t>(things_.size()) : free_.back();
  }
  T& add(std::unique_ptr<T> thing) {
    const uint32_t number = next();
    if (free_.empty()) {
      things_.emplace_back();
    } else {
      free_.pop_back();
    }
    things_[number] = std::move(thing);
    return *things_[number];
  }
  void remove(uint32_t number) {
    things_[number].reset();
    free_.push_back(number);
  }

  // The thing must exist.
  T& operator[](uint32_t number) const { return *things_[number]; }
  // nullptr: no thing has this number.
  T* find(uint32_t number) const {
    return number < things_.size() ? things_[number].get() : nullptr;
  }
  // All numbers are below it.
  size_t size() const { return things_.size(); }

 private:
  size_t most_;
  std::vector<std::unique_ptr<T>> things_;
  std::vector<uint32_t> free_;
};

}  // namespace pacecar
