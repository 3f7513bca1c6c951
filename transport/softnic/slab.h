// Memory for the headers and trailers of the packets of one burst, handed out front to back: a
// packet's trailer and the next packet's header lie next to each other, so that a packet I/O can
// gather both as one piece.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/base/check.h"
#include "transport/base/prefetch.h"

namespace pacecar {

class Slab {
 public:
  // Fetches into the cache what the first packet needs.
  void prepare() const { prefetch(this, 128); }
  void clear() { used_ = 0; }
  size_t room() const { return bytes_.size() - used_; }
  std::span<uint8_t> take(size_t size) {
    PACECAR_DCHECK(size <= room());
    const auto piece = std::span(bytes_).subspan(used_, size);
    used_ += size;
    return piece;
  }

 private:
  size_t used_ = 0;
  std::array<uint8_t, 32768> bytes_;
};

}  // namespace pacecar
