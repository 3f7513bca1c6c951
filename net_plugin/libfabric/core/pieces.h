// Lists of memory pieces. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pacecar::fabric {

struct Piece {
  uint8_t* data = nullptr;
  size_t size = 0;
};

inline size_t total(std::span<const Piece> pieces) {
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.size;
  return bytes;
}

// Calls move(i, i_offset, j, j_offset, bytes), in order, for each run of bytes that is within one
// piece on both sides. Stops at the end of the shorter side. from_size(i) and to_size(j): sizes.
template <typename FromSize, typename ToSize, typename Move>
void pair_pieces(size_t from_count, FromSize from_size, size_t to_count, ToSize to_size,
                 Move move) {
  size_t from = 0;
  size_t to = 0;
  uint64_t from_offset = 0;
  uint64_t to_offset = 0;
  while (from < from_count && to < to_count) {
    const uint64_t bytes =
        std::min<uint64_t>(from_size(from) - from_offset, to_size(to) - to_offset);
    if (bytes > 0) move(from, from_offset, to, to_offset, bytes);
    from_offset += bytes;
    to_offset += bytes;
    if (from_offset == from_size(from)) {
      ++from;
      from_offset = 0;
    }
    if (to_offset == to_size(to)) {
      ++to;
      to_offset = 0;
    }
  }
}

}  // namespace pacecar::fabric
