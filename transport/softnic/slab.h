// Memory for the headers and trailers of the packets of one burst, handed out front to back: a
// packet's trailer and the next packet's header lie next to each other, so that a packet I/O can
// gather both as one piece.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "transport/base/check.h"
#include "transport/base/prefetch.h"

namespace pacecar {

class Slab {
 public:
  explicit Slab(size_t size)
      : size_(size), bytes_(std::make_unique_for_overwrite<uint8_t[]>(size)) {}

  // Prefetches what the first packet needs.
  void prepare() const { prefetch(bytes_.get(), 64); }
  void clear() { used_ = 0; }
  size_t room() const { return size_ - used_; }
  std::span<uint8_t> take(size_t size) {
    PACECAR_DCHECK(size <= room());
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
