#include "gdr/ring_space.h"

#include <algorithm>

#include "transport/base/check.h"

namespace pacecar {

std::optional<size_t> RingSpace::take(size_t bytes) {
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

void RingSpace::give_back(size_t offset) {
  const auto piece = std::ranges::find(pieces_, offset, &Piece::offset);
  PACECAR_CHECK(piece != pieces_.end() && piece->used);
  piece->used = false;
  while (!pieces_.empty() && !pieces_.front().used) pieces_.pop_front();
}

}  // namespace pacecar
