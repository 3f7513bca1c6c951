// Registered memory for inline data, and for work requests with several pieces. Sizes are powers of
// two; memory is reused, and released with the pool. Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transport/nic/nic.h"

namespace pacecar::ibverbs {

struct Staging {
  uint8_t* data = nullptr;  // null: none
  uint32_t key = 0;
  unsigned size_class = 0;  // logarithm of the size
};

class StagingPool {
 public:
  explicit StagingPool(NicMemory& nic) : nic_(nic) {}
  ~StagingPool() {
    for (const auto& [memory, region] : all_) nic_.deregister_memory(region);
  }
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // Null data: the NIC has no region left.
  Staging take(Bytes bytes) {
    const auto size_class = static_cast<unsigned>(std::bit_width(std::max(bytes, kLeast) - 1));
    auto& free = free_[size_class];
    if (free.empty() && !grow(size_class)) return {};
    const Staging staging = free.back();
    free.pop_back();
    return staging;
  }
  void give_back(const Staging& staging) {
    if (staging.data != nullptr) free_[staging.size_class].push_back(staging);
  }

 private:
  static constexpr Bytes kLeast = 256;
  static constexpr Bytes kSlab = 1 << 16;  // Small ones are allocated this many bytes at a time.

  bool grow(unsigned size_class) {
    const Bytes each = Bytes{1} << size_class;
    const Bytes bytes = std::max(each, kSlab);
    auto memory = std::make_unique_for_overwrite<uint8_t[]>(bytes);
    const auto region = nic_.register_memory(memory.get(), bytes, Access::kLocalWrite);
    if (!region) return false;
    for (Bytes at = 0; at < bytes; at += each) {
      free_[size_class].push_back({memory.get() + at, region->key, size_class});
    }
    all_.emplace_back(std::move(memory), *region);
    return true;
  }

  NicMemory& nic_;
  std::array<std::vector<Staging>, 64> free_;  // by size class
  std::vector<std::pair<std::unique_ptr<uint8_t[]>, MemoryRegion>> all_;
};

}  // namespace pacecar::ibverbs
