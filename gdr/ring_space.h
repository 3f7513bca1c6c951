// RingSpace: allocates contiguous pieces of a ring of bytes. Pieces are taken in order and given
// back in any order; the space of a piece is free again when the pieces before it are given back,
// too.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace pacecar {

class RingSpace {
 public:
  static constexpr size_t kAlignment = 512;  // bytes; of every offset

  // `bytes` is a multiple of kAlignment.
  explicit RingSpace(size_t bytes) : bytes_(bytes) {}

  // The offset of `bytes` > 0 bytes; nullopt when there is no room for now.
  std::optional<size_t> take(size_t bytes);
  void give_back(size_t offset);

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
