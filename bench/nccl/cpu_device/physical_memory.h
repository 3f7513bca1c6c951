// What cuMemCreate makes: memory without addresses. It is a file in memory of its own, so that
// other processes can have it, too. Thread rule: any thread.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace pacecar::nccl::cpu {

// CUmemAllocationProp.
struct PhysicalProperties {
  int type = 0;
  int handle_types = 0;
  int location_type = 0;
  int location = 0;
  void* windows = nullptr;
  std::array<unsigned char, 8> flags{};

  static constexpr int kOnDevice = 1;
};
static_assert(sizeof(PhysicalProperties) == 32);

class PhysicalMemory {
 public:
  // Zeroed; nullptr when there is no more.
  static std::shared_ptr<PhysicalMemory> create(size_t bytes, const PhysicalProperties& properties);
  // What another process has created; nullptr: the file is none. The caller keeps the descriptor.
  static std::shared_ptr<PhysicalMemory> import(int descriptor);

  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;
  ~PhysicalMemory();

  int descriptor() const { return descriptor_; }
  size_t bytes() const { return bytes_; }
  const PhysicalProperties& properties() const { return properties_; }

 private:
  PhysicalMemory(int descriptor, size_t bytes, const PhysicalProperties& properties)
      : descriptor_(descriptor), bytes_(bytes), properties_(properties) {}

  const int descriptor_;
  const size_t bytes_;
  const PhysicalProperties properties_;
};

}  // namespace pacecar::nccl::cpu
