// CUDA's virtual memory: physical memory, addresses, and which memory is at which address. Memory
// goes to other processes by a file's descriptor.
#include <fcntl.h>
#include <sys/mman.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "bench/nccl/cpu_device/calls.h"
#include "bench/nccl/cpu_device/memory.h"
#include "bench/nccl/cpu_device/settings.h"

using namespace pacecar::nccl::cpu;

namespace {

using Handle = unsigned long long;  // CUmemGenericAllocationHandle: where the PhysicalMemory is

constexpr int kPosixFileDescriptor = 1;  // CUmemAllocationHandleType

struct Access {  // CUmemAccessDesc
  int location_type;
  int location;
  int flags;  // 0 none, 1 read, 3 read and write: as PROT_*
};
static_assert(PROT_NONE == 0 && PROT_READ == 1 && (PROT_READ | PROT_WRITE) == 3);

// As many entries of a handle as it is to be released.
class Handles {
 public:
  Status add(Handle* handle, std::shared_ptr<PhysicalMemory> memory, Status otherwise) {
    if (memory == nullptr) return otherwise;
    *handle = reinterpret_cast<Handle>(memory.get());
    const std::lock_guard lock(mutex_);
    held_.emplace(*handle, std::move(memory));
    return kSuccess;
  }
  // nullptr: there is none.
  std::shared_ptr<PhysicalMemory> get(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(handle);
    return found != held_.end() ? found->second : nullptr;
  }
  bool release(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(handle);
    if (found == held_.end()) return false;
    held_.erase(found);
    return true;
  }

 private:
  std::mutex mutex_;
  std::multimap<Handle, std::shared_ptr<PhysicalMemory>> held_;
};

Handles& handles() {
  static Handles& all = *new Handles;
  return all;
}

Status status(bool done) { return done ? kSuccess : kInvalidValue; }

}  // namespace

CPU_DEVICE_EXPORT int cuMemGetAllocationGranularity(size_t* bytes, const PhysicalProperties*, int) {
  return give(bytes, Memory::kDevicePage);
}

CPU_DEVICE_EXPORT int cuMemCreate(Handle* handle, size_t bytes,
                                  const PhysicalProperties* properties, unsigned long long) {
  if (bytes == 0 || bytes % Memory::kDevicePage != 0) return kInvalidValue;
  if ((properties->handle_types & ~kPosixFileDescriptor) != 0) return kNotSupported;
  if (properties->location_type == PhysicalProperties::kOnDevice &&
      (properties->location < 0 || properties->location >= settings().devices)) {
    return kInvalidDevice;
  }
  return handles().add(handle, PhysicalMemory::create(bytes, *properties), kOutOfMemory);
}

CPU_DEVICE_EXPORT int cuMemRelease(Handle handle) { return status(handles().release(handle)); }

CPU_DEVICE_EXPORT int cuMemRetainAllocationHandle(Handle* handle, void* pointer) {
  const auto found = Memory::get().find(pointer);
  return handles().add(handle, found ? found->physical : nullptr, kInvalidValue);
}

CPU_DEVICE_EXPORT int cuMemGetAllocationPropertiesFromHandle(PhysicalProperties* properties,
                                                             Handle handle) {
  const auto memory = handles().get(handle);
  if (memory != nullptr) *properties = memory->properties();
  return status(memory != nullptr);
}

CPU_DEVICE_EXPORT int cuMemExportToShareableHandle(int* descriptor, Handle handle, int type,
                                                   unsigned long long) {
  const auto memory = handles().get(handle);
  if (memory == nullptr || (memory->properties().handle_types & type) == 0) return kInvalidValue;
  *descriptor = fcntl(memory->descriptor(), F_DUPFD_CLOEXEC, 0);
  return status(*descriptor >= 0);
}

CPU_DEVICE_EXPORT int cuMemImportFromShareableHandle(Handle* handle, void* shared, int type) {
  if (type != kPosixFileDescriptor) return kNotSupported;
  const auto descriptor = static_cast<int>(reinterpret_cast<intptr_t>(shared));
  return handles().add(handle, PhysicalMemory::import(descriptor), kInvalidValue);
}

CPU_DEVICE_EXPORT int cuMemAddressReserve(DevicePointer* begin, size_t bytes, size_t alignment,
                                          DevicePointer, unsigned long long) {
  void* const reserved = Memory::get().reserve(bytes, alignment);
  *begin = reinterpret_cast<DevicePointer>(reserved);
  return status(reserved != nullptr);
}

CPU_DEVICE_EXPORT int cuMemAddressFree(DevicePointer begin, size_t bytes) {
  return status(Memory::get().unreserve(address(begin), bytes));
}

CPU_DEVICE_EXPORT int cuMemMap(DevicePointer begin, size_t bytes, size_t offset, Handle handle,
                               unsigned long long) {
  auto memory = handles().get(handle);
  return status(memory != nullptr &&
                Memory::get().map(address(begin), bytes, offset, std::move(memory)));
}

CPU_DEVICE_EXPORT int cuMemUnmap(DevicePointer begin, size_t bytes) {
  return status(Memory::get().unmap(address(begin), bytes));
}

// What one location may do, all may.
CPU_DEVICE_EXPORT int cuMemSetAccess(DevicePointer begin, size_t bytes, const Access* accesses,
                                     size_t count) {
  int protection = PROT_NONE;
  for (size_t i = 0; i < count; ++i) protection |= accesses[i].flags;
  return status(Memory::get().protect(address(begin), bytes, protection));
}
