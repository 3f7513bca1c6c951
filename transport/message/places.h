// Objects by number, up to a bound. The number that was freed last is used next, so that few
// objects take little memory. Memory grows only when an object is added.
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

  bool full() const { return free_.empty() && objects_.size() == most_; }
  // The number of the object that is added next. Not when full.
  uint32_t next() const {
    return free_.empty() ? static_cast<uint32_t>(objects_.size()) : free_.back();
  }
  T& add(std::unique_ptr<T> object) {
    const uint32_t number = next();
    if (free_.empty()) {
      objects_.emplace_back();
    } else {
      free_.pop_back();
    }
    objects_[number] = std::move(object);
    return *objects_[number];
  }
  void remove(uint32_t number) {
    objects_[number].reset();
    free_.push_back(number);
  }

  // The object must exist.
  T& operator[](uint32_t number) const { return *objects_[number]; }
  // nullptr: no object has this number.
  T* find(uint32_t number) const {
    return number < objects_.size() ? objects_[number].get() : nullptr;
  }
  // All numbers are below it.
  size_t size() const { return objects_.size(); }

 private:
  size_t most_;
  std::vector<std::unique_ptr<T>> objects_;
  std::vector<uint32_t> free_;
};

}  // namespace pacecar
