// Memory for the headers and trailers of the packets of one burst, handed out front to back: a
// packet's trailer and the next packet's header lie next to each other, so that a packet I/O can
// gather both as one piece.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/base/check.h"

namespace pacecar {

class Slab {
 public:
  void clear() { used_ = 0; }
  size_t room() const { return bytes_.size() - used_; }
  std::span<uint8_t> take(size_t size) {
    PACECAR_DCHECK(size <= room());
    const auto piece = std::span(bytes_).subspan(used_, size);
    used_ += size;
    return piece;
  }

 private:
  std::array<uint8_t, 32768> bytes_;
  size_t used_ = 0;
};

}  // namespace pacecar
