// Addresses that can be taken, first fit, and given back. Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace pacecar::nccl::cpu {

// `bytes` rounded up to a multiple of `unit`; at least one `unit`.
constexpr size_t rounded(size_t bytes, size_t unit) {
  return ((bytes == 0 ? 1 : bytes) + unit - 1) / unit * unit;
}

class AddressRanges {
 public:
  void give(uintptr_t begin, size_t bytes) {
    const auto after = free_.find(begin + bytes);
    if (after != free_.end()) {
      bytes += after->second;
      free_.erase(after);
    }
    auto before = free_.lower_bound(begin);
    if (before != free_.begin() && (--before)->first + before->second == begin) {
      before->second += bytes;
    } else {
      free_[begin] = bytes;
    }
  }

  // At a multiple of `alignment`.
  std::optional<uintptr_t> take(size_t bytes, size_t alignment) {
    for (auto [begin, size] : free_) {
      const size_t skipped = rounded(begin, alignment) - begin;
      if (skipped > size || size - skipped < bytes) continue;
      free_.erase(begin);
      if (skipped > 0) free_[begin] = skipped;
      const uintptr_t taken = begin + skipped;
      if (size - skipped > bytes) free_[taken + bytes] = size - skipped - bytes;
      return taken;
    }
    return std::nullopt;
  }

 private:
  std::map<uintptr_t, size_t> free_;  // begin, bytes
};

}  // namespace pacecar::nccl::cpu
