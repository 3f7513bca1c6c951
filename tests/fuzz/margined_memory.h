// Memory between margins that nothing may write: check_margins finds such writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/check.h"

namespace pacecar::fuzz {

class MarginedMemory {
 public:
  static constexpr uint8_t kUntouched = 0xC5;  // the initial content of memory and margins

  explicit MarginedMemory(size_t size) : size_(size), bytes_(size + 2 * kMargin, kUntouched) {}

  uint8_t* data() { return &bytes_[kMargin]; }
  const uint8_t* data() const { return &bytes_[kMargin]; }
  size_t size() const { return size_; }
  void check_margins() const {
    for (size_t i = 0; i < kMargin; ++i) {
      PACECAR_CHECK(bytes_[i] == kUntouched && bytes_[kMargin + size_ + i] == kUntouched);
    }
  }
  bool operator==(const MarginedMemory&) const = default;

 private:
  static constexpr size_t kMargin = 64;
  size_t size_;
  std::vector<uint8_t> bytes_;
};

}  // namespace pacecar::fuzz
