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

[[noreturn]] void end_without_addresses() {
  std::perror("cpu_device: cannot reserve addresses for GPU memory; raise `ulimit -v`");
  std::abort();
}

// At a multiple of Memory::kDevicePage. Nobody may touch them.
uintptr_t addresses(size_t bytes) {
  void* const reserved = mmap(nullptr, bytes + Memory::kDevicePage, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) end_without_addresses();
  return rounded(reinterpret_cast<uintptr_t>(reserved), Memory::kDevicePage);
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
  const uintptr_t device = addresses(kArenaBytes + kReservableBytes);
  arena_ = settings().trap ? addresses(kArenaBytes + kReservableBytes) : device;
  view_offset_ = device - arena_;
  if (mmap(reinterpret_cast<void*>(device), kArenaBytes, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file_, 0) == MAP_FAILED) {
    end_without_addresses();
  }
  free_.give(arena_, kArenaBytes);
  reservable_.give(arena_ + kArenaBytes, kReservableBytes);
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
  const auto taken = free_.take(rounded(bytes, kDevicePage), kDevicePage);
  return reinterpret_cast<void*>(taken.value_or(0));
}

void Memory::release_device(uintptr_t base, size_t bytes) {
  const size_t size = rounded(bytes, kDevicePage);
  // Its pages go back to the system; who is given these addresses next finds zeros.
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(base - arena_),
            static_cast<off_t>(size));
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
