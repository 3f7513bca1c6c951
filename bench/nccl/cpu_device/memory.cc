#include "bench/nccl/cpu_device/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "bench/nccl/cpu_device/settings.h"

namespace pacecar::nccl::cpu {
namespace {

constexpr size_t kPage = 4096;

// At a multiple of Memory::kDevicePage. Nobody may touch them.
uintptr_t addresses(size_t bytes) {
  void* const reserved = mmap(nullptr, bytes + Memory::kDevicePage, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    std::perror("cpu_device: cannot reserve addresses for GPU memory; raise `ulimit -v`");
    std::abort();
  }
  return rounded(reinterpret_cast<uintptr_t>(reserved), Memory::kDevicePage);
}

}  // namespace

Memory& Memory::get() {
  static Memory& memory = *new Memory;  // used until the process ends
  return memory;
}

Memory::Memory() {
  const uintptr_t device = addresses(kAddressBytes);
  first_address_ = settings().trap ? addresses(kAddressBytes) : device;
  view_offset_ = device - first_address_;
  free_.give(first_address_, kAddressBytes);
}

bool Memory::map_zeros(void* place, size_t bytes, int protection) {
  return mmap(place, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
              0) != MAP_FAILED;
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
  if (bytes > kMostBytes) return nullptr;  // it might be too many to be rounded
  const size_t size = rounded(bytes, kDevicePage);
  const auto taken = free_.take(size, kDevicePage);
  if (!taken || !map_zeros(device_view(*taken), size, PROT_READ | PROT_WRITE)) return nullptr;
  return reinterpret_cast<void*>(*taken);
}

void Memory::release_device(uintptr_t base, size_t bytes) {
  const size_t size = rounded(bytes, kDevicePage);
  map_zeros(device_view(base), size, PROT_NONE);
  free_.give(base, size);
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
  if (found == allocations_.end() || found->second.physical != nullptr) return false;
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
