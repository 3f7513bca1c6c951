// Memory's part for CUDA's virtual memory.
#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "bench/nccl/cpu_device/memory.h"

namespace pacecar::nccl::cpu {
namespace {

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

bool whole_pages(size_t value) { return value % Memory::kDevicePage == 0; }

}  // namespace

void* Memory::reserve(size_t bytes, size_t alignment) {
  if (bytes == 0 || !whole_pages(bytes) || (alignment & (alignment - 1)) != 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto taken = free_.take(bytes, std::max(alignment, kDevicePage));
  if (!taken) return nullptr;
  reserved_[*taken] = bytes;
  return reinterpret_cast<void*>(*taken);
}

bool Memory::unreserve(const void* begin, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reserved_.find(number(begin));
  if (found == reserved_.end() || found->second != bytes) return false;
  const auto inside = allocations_.lower_bound(number(begin));
  if (inside != allocations_.end() && inside->first < number(begin) + bytes) return false;
  reserved_.erase(found);
  free_.give(number(begin), bytes);
  return true;
}

bool Memory::in_reservation(uintptr_t begin, size_t bytes) const {
  auto after = reserved_.upper_bound(begin);
  if (after == reserved_.begin()) return false;
  const auto& [reserved, size] = *--after;
  return begin - reserved < size && bytes <= size - (begin - reserved);
}

// The device finds the memory in its view; the host finds host memory where the pointer points.
template <typename Change>
bool Memory::change_places(const Allocation& mapping, const Change& change) const {
  const bool done = change(device_view(mapping.base), mapping.bytes);
  if (!done || mapping.kind == MemoryKind::kDevice) return done;
  return change(reinterpret_cast<void*>(mapping.base), mapping.bytes);
}

bool Memory::map(void* begin, size_t bytes, size_t offset, std::shared_ptr<PhysicalMemory> memory) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || !whole_pages(number(begin) | bytes | offset) || offset > memory->bytes() ||
      bytes > memory->bytes() - offset || !in_reservation(number(begin), bytes)) {
    return false;
  }
  const auto after = allocations_.lower_bound(number(begin) + bytes);
  if (after != allocations_.begin() && std::prev(after)->second.physical != nullptr &&
      std::prev(after)->first + std::prev(after)->second.bytes > number(begin)) {
    return false;
  }
  const bool on_device = memory->properties().location_type == PhysicalProperties::kOnDevice;
  const Allocation made{.base = number(begin),
                        .bytes = bytes,
                        .kind = on_device ? MemoryKind::kDevice : MemoryKind::kHost,
                        .device = on_device ? memory->properties().location : 0,
                        .id = ++last_id_,
                        .physical = std::move(memory)};
  const bool done = change_places(made, [&](void* place, size_t size) {
    return mmap(place, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                made.physical->descriptor(), static_cast<off_t>(offset)) != MAP_FAILED;
  });
  if (done) allocations_[made.base] = made;
  return done;
}

std::vector<Memory::Allocations::iterator> Memory::mappings(const void* begin, size_t bytes) {
  std::vector<Allocations::iterator> found;
  uintptr_t next = number(begin);
  const uintptr_t end = next + bytes;
  while (next < end) {
    const auto one = allocations_.find(next);
    if (one == allocations_.end() || one->second.physical == nullptr) return {};
    found.push_back(one);
    next += one->second.bytes;
  }
  if (next != end) return {};
  return found;
}

bool Memory::protect(void* begin, size_t bytes, int protection) {
  const std::lock_guard lock(mutex_);
  const auto changed = mappings(begin, bytes);
  return !changed.empty() && std::ranges::all_of(changed, [&](const auto& one) {
    return change_places(one->second, [&](void* place, size_t size) {
      return mprotect(place, size, protection) == 0;
    });
  });
}

bool Memory::unmap(void* begin, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto ended = mappings(begin, bytes);
  for (const auto& one : ended) {
    change_places(one->second,
                  [](void* place, size_t size) { return map_zeros(place, size, PROT_NONE); });
    allocations_.erase(one);
  }
  return !ended.empty();
}

}  // namespace pacecar::nccl::cpu
