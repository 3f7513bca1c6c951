// The memory of the GPUs that this process plays, and the host memory that CUDA knows.
//
// GPU memory is mapped where CUDA's pointers point; what cuMemCreate makes is a file in memory
// (physical_memory.h). With CPU_GPU_TRAP=1 both are mapped elsewhere: the host then may not touch
// the addresses that it is given, and only the device, through view(), finds the bytes. So code
// that reads or writes GPU memory with the processor ends with a signal, as it does on a GPU.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bench/nccl/cpu_device/physical_memory.h"

namespace pacecar::nccl::cpu {

// `bytes` rounded up to a multiple of `unit`; at least one `unit`.
constexpr size_t rounded(size_t bytes, size_t unit) {
  return ((bytes == 0 ? 1 : bytes) + unit - 1) / unit * unit;
}

// Addresses that can be taken, first fit, and given back. Thread rule: one thread at a time.
class AddressRanges {
 public:
  void give(uintptr_t begin, size_t bytes) {
    const auto after = free_.find(begin + bytes);
    if (after != free_.end()) {
      bytes += after->second;
      free_.erase(after);
    }
    auto before = free_.lower_bound(begin);
    if (before != free_.begin() && (--before)->first + before->second == begin) {
      before->second += bytes;
    } else {
      free_[begin] = bytes;
    }
  }

  // At a multiple of `alignment`.
  std::optional<uintptr_t> take(size_t bytes, size_t alignment) {
    for (auto [begin, size] : free_) {
      const size_t skipped = rounded(begin, alignment) - begin;
      if (skipped > size || size - skipped < bytes) continue;
      free_.erase(begin);
      if (skipped > 0) free_[begin] = skipped;
      const uintptr_t taken = begin + skipped;
      if (size - skipped > bytes) free_[taken + bytes] = size - skipped - bytes;
      return taken;
    }
    return std::nullopt;
  }

 private:
  std::map<uintptr_t, size_t> free_;  // begin, bytes
};

enum class MemoryKind { kHost, kDevice };

struct Allocation {
  uintptr_t base = 0;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::kHost;
  int device = 0;                              // current when it was made
  uint64_t id = 0;                             // never given twice
  bool mapped = true;                          // false: the caller's own memory, registered
  std::shared_ptr<PhysicalMemory> physical{};  // of which this is a mapping
};

class Memory {
 public:
  static Memory& get();

  bool trapped() const { return view_offset_ != 0; }

  // Zeroed, at page boundaries; GPU memory at 2 MiB. nullptr when there is no more.
  void* allocate(size_t bytes, MemoryKind kind, int device);
  void register_host(void* begin, size_t bytes, int device);
  // False when nothing begins at `begin`.
  bool release(const void* begin);
  // What holds `address`.
  std::optional<Allocation> find(const void* address) const;

  // --- CUDA's virtual memory; false where CUDA has an error ---

  static constexpr size_t kDevicePage = size_t{2} << 20;  // the unit of sizes and places

  // Addresses without memory, at a multiple of `alignment`; nullptr when there are no more.
  void* reserve(size_t bytes, size_t alignment);
  bool unreserve(const void* begin, size_t bytes);
  // Puts memory at reserved addresses. Nobody may touch it before protect().
  bool map(void* begin, size_t bytes, size_t offset, std::shared_ptr<PhysicalMemory> memory);
  // Sets PROT_* of mmap for all mappings in the range.
  bool protect(void* begin, size_t bytes, int protection);
  bool unmap(void* begin, size_t bytes);

  // Where the device finds what CUDA's pointer points to; other addresses are themselves.
  template <typename T>
  T* view(T* address) const {
    const auto number = reinterpret_cast<uintptr_t>(address);
    return number - first_address_ < kAddressBytes ? reinterpret_cast<T*>(number + view_offset_)
                                                   : address;
  }

 private:
  // Address space only; pages come when written.
  static constexpr size_t kAddressBytes = size_t{512} << 30;
  static constexpr size_t kMostBytes = size_t{64} << 30;  // of one piece

  using Allocations = std::map<uintptr_t, Allocation>;

  Memory();
  void* device_view(uintptr_t address) const {
    return reinterpret_cast<void*>(address + view_offset_);
  }
  static bool map_zeros(void* place, size_t bytes, int protection);
  void* allocate_device(size_t bytes);
  void release_device(uintptr_t base, size_t bytes);
  bool in_reservation(uintptr_t begin, size_t bytes) const;
  // The mappings in the range; none when it cuts one.
  std::vector<Allocations::iterator> mappings(const void* begin, size_t bytes);
  template <typename Change>
  bool change_places(const Allocation& mapping, const Change& change) const;

  uintptr_t first_address_ = 0;
  uintptr_t view_offset_ = 0;
  mutable std::mutex mutex_;
  AddressRanges free_;
  std::map<uintptr_t, size_t> reserved_;  // begin, bytes
  Allocations allocations_;
  uint64_t last_id_ = 0;
};

// view() of the one memory.
template <typename T>
T* view(T* address) {
  return Memory::get().view(address);
}

}  // namespace pacecar::nccl::cpu
