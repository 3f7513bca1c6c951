#include "transport/base/fresh_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace pacecar {

void UnmapPages::operator()(uint8_t* pages) const { munmap(pages, bytes); }

FreshPages make_fresh_pages(size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<uint8_t*>(pages), UnmapPages{bytes}};
}

}  // namespace pacecar
