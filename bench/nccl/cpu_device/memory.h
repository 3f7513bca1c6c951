// The memory of the GPUs that this process plays, and the host memory that CUDA knows.
//
// GPU memory is one file in memory, mapped where CUDA's pointers point. With CPU_GPU_TRAP=1
// it is mapped a second time: the host then may not touch the addresses that it is given, and only
// the device, through view(), finds the bytes. So code that reads or writes GPU memory with the
// processor ends with a signal, as it does on a GPU. Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace pacecar::nccl::cpu {

enum class MemoryKind { kHost, kDevice };

struct Allocation {
  uintptr_t base = 0;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::kHost;
  int device = 0;      // current when it was made
  uint64_t id = 0;     // never given twice
  bool mapped = true;  // false: the caller's own memory, registered
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

  // Where the device finds what CUDA's pointer points to; other addresses are themselves.
  template <typename T>
  T* view(T* address) const {
    const auto number = reinterpret_cast<uintptr_t>(address);
    return number - arena_ < kArenaBytes ? reinterpret_cast<T*>(number + view_offset_) : address;
  }

 private:
  static constexpr size_t kArenaBytes = size_t{64} << 30;  // of addresses; pages come when written

  Memory();
  void* allocate_device(size_t bytes);
  void release_device(uintptr_t base, size_t bytes);

  int file_ = -1;
  uintptr_t arena_ = 0;
  uintptr_t view_offset_ = 0;
  mutable std::mutex mutex_;
  std::map<uintptr_t, size_t> free_;  // of the arena: begin, bytes
  std::map<uintptr_t, Allocation> allocations_;
  uint64_t last_id_ = 0;
};

// view() of the one memory.
template <typename T>
T* view(T* address) {
  return Memory::get().view(address);
}

}  // namespace pacecar::nccl::cpu
