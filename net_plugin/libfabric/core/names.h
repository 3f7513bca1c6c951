// Address vector: endpoints' addresses by number, and the reverse. Pure; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "transport/wire/packet.h"

namespace pacecar::fabric {

class Names {
 public:
  // A name that is added twice has two numbers; number_of() returns the older one.
  uint64_t add(const Address& name) {
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
  const Address* find(uint64_t number) const {
    return number < names_.size() && names_[number] ? &*names_[number] : nullptr;
  }
  std::optional<uint64_t> number_of(const Address& name) const {
    const auto at = numbers_.find(name);
    return at == numbers_.end() ? std::nullopt : std::optional(at->second);
  }

 private:
  std::vector<std::optional<Address>> names_;
  std::vector<uint64_t> free_;
  std::multimap<Address, uint64_t> numbers_;
};

}  // namespace pacecar::fabric
