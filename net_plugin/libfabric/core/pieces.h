// Bytes that lie in several pieces here and in several there: what goes from where to where.
// Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

// Calls move(i, i_offset, j, j_offset, bytes) for each run that lies in one piece on both sides, in
// order, until either side is at its end. `from` and `to` give sizes by size(i).
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

// As many of the bytes as there is room for, from `offset` of the pieces on; returns how many.
inline size_t scatter(std::span<const uint8_t> bytes, std::span<const Piece> pieces) {
  size_t done = 0;
  for (const Piece& piece : pieces) {
    const size_t part = std::min(piece.size, bytes.size() - done);
    if (part > 0) std::memcpy(piece.data, bytes.data() + done, part);
    done += part;
  }
  return done;
}

inline size_t gather(std::span<const Piece> pieces, uint8_t* to) {
  size_t done = 0;
  for (const Piece& piece : pieces) {
    if (piece.size > 0) std::memcpy(to + done, piece.data, piece.size);
    done += piece.size;
  }
  return done;
}

}  // namespace pacecar::fabric
