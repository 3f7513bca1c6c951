// RingSpace: allocates contiguous pieces of a ring of bytes. Pieces are taken in order and given
// back in any order; the space of a piece is free again when the pieces before it are given back,
// too. Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>

#include "transport/base/check.h"

namespace pacecar {

class RingSpace {
 public:
  static constexpr size_t kAlignment = 512;  // bytes; of every offset

  // `bytes` is a multiple of kAlignment.
  explicit RingSpace(size_t bytes) : bytes_(bytes) {}

  // The offset of `bytes` > 0 bytes; nullopt when the ring has no room now.
  std::optional<size_t> take(size_t bytes) {
    if (bytes > bytes_) return std::nullopt;
    const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (pieces_.empty()) end_ = 0;
    const size_t begin = pieces_.empty() ? bytes_ : pieces_.front().offset;
    size_t offset = end_;
    if (!pieces_.empty() && end_ == begin) return std::nullopt;  // full
    if (end_ < begin) {
      if (size > begin - end_) return std::nullopt;
      // no room at the end: wrap to the start, up to the oldest piece
    } else if (size > bytes_ - end_) {
      if (size > begin) return std::nullopt;
      offset = 0;
    }
    end_ = offset + size;
    pieces_.push_back({offset});
    return offset;
  }
  void give_back(size_t offset) {
    const auto piece = std::ranges::find(pieces_, offset, &Piece::offset);
    PACECAR_CHECK(piece != pieces_.end() && piece->used);
    piece->used = false;
    while (!pieces_.empty() && !pieces_.front().used) pieces_.pop_front();
  }

 private:
  struct Piece {
    size_t offset = 0;
    bool used = true;
  };

  const size_t bytes_;
  size_t end_ = 0;            // of the newest piece
  std::deque<Piece> pieces_;  // in the order of their taking; at most bytes_ / kAlignment
};

}  // namespace pacecar
