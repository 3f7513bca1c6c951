// A fuzzer's input as a list of choices. Past its end every choice is 0.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace pacecar::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : bytes_(data, size) {}

  bool empty() const { return bytes_.empty(); }
  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  // 0 .. bound - 1; `bound` is not 0.
  size_t below(size_t bound) { return (bound <= 256 ? u8() : u32()) % bound; }
  // At most `count` bytes.
  std::span<const uint8_t> bytes(size_t count) {
    const auto taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  std::span<const uint8_t> rest() { return bytes(bytes_.size()); }
  std::string_view text() {
    const auto taken = rest();
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  uint64_t number(size_t count) {
    uint64_t value = 0;
    for (const uint8_t byte : bytes(count)) value = value << 8 | byte;
    return value;
  }

  std::span<const uint8_t> bytes_;
};

}  // namespace pacecar::fuzz
