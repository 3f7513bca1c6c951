// Memory in whole pages from the kernel. It is zero at first, and a page takes no memory before it
// is written. For large tables that are mostly unused, and for memory that is registered with a
// NIC: with kernels before 5.12 registered pages are missing in a forked child, with all that lies
// in them. Throws std::bad_alloc. Thread rule: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace pacecar {

struct UnmapPages {
  size_t bytes = 0;
  void operator()(uint8_t* pages) const;
};
using FreshPages = std::unique_ptr<uint8_t[], UnmapPages>;

FreshPages make_fresh_pages(size_t bytes);  // At least one page.

// Values in pages of their own; zero at first.
template <typename T>
class OwnPages {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit OwnPages(size_t size = 1) : size_(size), pages_(make_fresh_pages(size * sizeof(T))) {}

  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }
  T* data() const { return reinterpret_cast<T*>(pages_.get()); }
  T& operator[](size_t i) const { return data()[i]; }
  T* operator->() const { return data(); }

 private:
  size_t size_;
  FreshPages pages_;
};

}  // namespace pacecar
