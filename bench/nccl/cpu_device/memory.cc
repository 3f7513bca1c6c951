#include "bench/nccl/cpu_device/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/nccl/cpu_device/settings.h"

namespace pacecar::nccl::cpu {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kDevicePage = size_t{2} << 20;

size_t rounded(size_t bytes, size_t unit) {
  return (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit;
}

// At a multiple of kDevicePage; ends the program when the system refuses.
uintptr_t map_arena(int file, size_t bytes, int protection) {
  void* const reserved = mmap(nullptr, bytes + kDevicePage, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const uintptr_t begin = rounded(reinterpret_cast<uintptr_t>(reserved), kDevicePage);
  if (reserved != MAP_FAILED &&
      mmap(reinterpret_cast<void*>(begin), bytes, protection,
           MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, 0) != MAP_FAILED) {
    return begin;
  }
  std::perror("cpu_device: cannot reserve addresses for GPU memory; raise `ulimit -v`");
  std::abort();
}

}  // namespace

Memory& Memory::get() {
  static Memory& memory = *new Memory;  // used until the process ends
  return memory;
}

Memory::Memory() {
  file_ = memfd_create("pacecar-gpu-memory", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, kArenaBytes) != 0) {
    std::perror("cpu_device: cannot make a file in memory for the GPU");
    std::abort();
  }
  const uintptr_t device = map_arena(file_, kArenaBytes, PROT_READ | PROT_WRITE);
  arena_ = settings().trap ? map_arena(file_, kArenaBytes, PROT_NONE) : device;
  view_offset_ = device - arena_;
  free_[arena_] = kArenaBytes;
}

void* Memory::allocate(size_t bytes, MemoryKind kind, int device) {
  const std::lock_guard lock(mutex_);
  void* begin = nullptr;
  if (kind == MemoryKind::kDevice) {
    begin = allocate_device(bytes);
  } else {
    begin = mmap(nullptr, rounded(bytes, kPage), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) begin = nullptr;
  }
  if (begin == nullptr) return nullptr;
  const auto base = reinterpret_cast<uintptr_t>(begin);
  allocations_[base] = {
      .base = base, .bytes = bytes, .kind = kind, .device = device, .id = ++last_id_};
  return begin;
}

void* Memory::allocate_device(size_t bytes) {
  if (bytes > kArenaBytes) return nullptr;  // and cannot be rounded
  const size_t wanted = rounded(bytes, kDevicePage);
  for (auto [begin, size] : free_) {
    if (size < wanted) continue;
    free_.erase(begin);
    if (size > wanted) free_[begin + wanted] = size - wanted;
    return reinterpret_cast<void*>(begin);
  }
  return nullptr;
}

void Memory::release_device(uintptr_t base, size_t bytes) {
  size_t size = rounded(bytes, kDevicePage);
  // Its pages go back to the system; who is given these addresses next finds zeros.
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(base - arena_),
            static_cast<off_t>(size));
  const auto after = free_.find(base + size);
  if (after != free_.end()) {
    size += after->second;
    free_.erase(after);
  }
  auto before = free_.lower_bound(base);
  if (before != free_.begin() && (--before)->first + before->second == base) {
    before->second += size;
  } else {
    free_[base] = size;
  }
}

void Memory::register_host(void* begin, size_t bytes, int device) {
  const std::lock_guard lock(mutex_);
  const auto base = reinterpret_cast<uintptr_t>(begin);
  allocations_[base] = {
      .base = base, .bytes = bytes, .device = device, .id = ++last_id_, .mapped = false};
}

bool Memory::release(const void* begin) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(begin));
  if (found == allocations_.end()) return false;
  const Allocation allocation = found->second;
  allocations_.erase(found);
  if (allocation.kind == MemoryKind::kDevice) {
    release_device(allocation.base, allocation.bytes);
  } else if (allocation.mapped) {
    munmap(reinterpret_cast<void*>(allocation.base), rounded(allocation.bytes, kPage));
  }
  return true;
}

std::optional<Allocation> Memory::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto number = reinterpret_cast<uintptr_t>(address);
  auto after = allocations_.upper_bound(number);
  if (after == allocations_.begin()) return std::nullopt;
  const Allocation& before = (--after)->second;
  if (number - before.base >= std::max<size_t>(before.bytes, 1)) return std::nullopt;
  return before;
}

}  // namespace pacecar::nccl::cpu
