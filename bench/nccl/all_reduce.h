// Common to all-reduces over a net plugin: buffers with known sums. Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "bench/nccl/collective.h"

namespace pacecar::nccl {

class AllReduce : public Collective {
 public:
  AllReduce(const Host& host, Board& board, int rank, size_t capacity)
      : Collective(host, board, rank), data_(capacity) {}

  void load(size_t elements) final {
    for (size_t i = 0; i < elements; ++i) data_[i] = element(i, rank_);
  }
  void clear(size_t elements) final { std::fill_n(data_.begin(), elements, 0.0F); }
  uint64_t wrong(size_t elements) const final {
    uint64_t wrong = 0;
    for (size_t i = 0; i < elements; ++i) {
      float sum = 0;
      for (size_t rank = 0; rank < ranks_; ++rank) sum += element(i, rank);
      wrong += data_[i] != sum;
    }
    return wrong;
  }

 protected:
  static constexpr size_t kSliceElements = 1 << 17;  // 512 KiB

  std::vector<float> data_;

 private:
  // Small whole numbers, so that every sum is exact and has one right answer.
  static float element(size_t index, size_t rank) {
    return static_cast<float>((index * 7 + rank * 13 + 1) % 61);
  }
};

}  // namespace pacecar::nccl
