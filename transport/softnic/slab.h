// Slab: memory for the headers and trailers of the packets of one poll_transmit. Pieces are taken
// from front to back, so a packet's trailer and the next packet's header are adjacent, and a packet
// I/O can gather both as one piece. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "transport/base/check.h"

namespace pacecar {

class Slab {
 public:
  explicit Slab(size_t size)
      : size_(size), bytes_(std::make_unique_for_overwrite<uint8_t[]>(size)) {}

  void clear() { used_ = 0; }
  size_t room() const { return size_ - used_; }
  std::span<uint8_t> take(size_t size) {
    PACECAR_CHECK(size <= room());
    const std::span piece(bytes_.get() + used_, size);
    used_ += size;
    return piece;
  }
  // Returns `size` bytes from the end of the last piece.
  void give_back(size_t size) { used_ -= size; }

 private:
  size_t used_ = 0;
  size_t size_;
  std::unique_ptr<uint8_t[]> bytes_;
};

}  // namespace pacecar
