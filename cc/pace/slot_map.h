// SlotMap: which numbers are taken; take_lowest() gives the lowest free one. Pure; one thread.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace pacecar {

class SlotMap {
 public:
  explicit SlotMap(uint32_t slots) : taken_((slots + 63) / 64) {}

  bool is_free(uint32_t slot) const { return (taken_[slot / 64] >> (slot % 64) & 1) == 0; }
  void take(uint32_t slot) { taken_[slot / 64] |= uint64_t{1} << (slot % 64); }
  void release(uint32_t slot) { taken_[slot / 64] &= ~(uint64_t{1} << (slot % 64)); }
  // A free slot must exist.
  uint32_t take_lowest() {
    uint32_t word = 0;
    while (taken_[word] == ~uint64_t{0}) ++word;
    const uint32_t slot = word * 64 + static_cast<uint32_t>(std::countr_one(taken_[word]));
    take(slot);
    return slot;
  }

 private:
  std::vector<uint64_t> taken_;
};

}  // namespace pacecar
