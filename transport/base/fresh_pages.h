// Memory in whole pages from the kernel: zero, and none is taken for a page before it is written.
// For tables of which most is seldom used. Throws std::bad_alloc. Thread rule: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pacecar {

struct UnmapPages {
  size_t bytes = 0;
  void operator()(uint8_t* pages) const;
};
using FreshPages = std::unique_ptr<uint8_t[], UnmapPages>;

FreshPages make_fresh_pages(size_t bytes);

}  // namespace pacecar
