#include "bench/nccl/cpu_device/physical_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

namespace pacecar::nccl::cpu {
namespace {

// Lies behind the memory in its file: other processes recognize the memory by it.
struct Label {
  uint64_t magic = 0x7061636563617267;
  PhysicalProperties properties;
};

}  // namespace

std::shared_ptr<PhysicalMemory> PhysicalMemory::create(size_t bytes,
                                                       const PhysicalProperties& properties) {
  const int file = memfd_create("pacecar-physical-memory", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  std::shared_ptr<PhysicalMemory> made(new PhysicalMemory(file, bytes, properties));
  const Label label{.properties = properties};
  const bool written = pwrite(file, &label, sizeof(label), static_cast<off_t>(bytes)) ==
                       static_cast<ssize_t>(sizeof(label));
  return written ? made : nullptr;
}

std::shared_ptr<PhysicalMemory> PhysicalMemory::import(int descriptor) {
  struct stat status {};
  Label label{.magic = 0};
  if (fstat(descriptor, &status) != 0) return nullptr;
  const off_t bytes = status.st_size - static_cast<off_t>(sizeof(label));
  if (bytes <= 0 || pread(descriptor, &label, sizeof(label), bytes) != sizeof(label) ||
      label.magic != Label{}.magic) {
    return nullptr;
  }
  const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return nullptr;
  return std::shared_ptr<PhysicalMemory>(
      new PhysicalMemory(own, static_cast<size_t>(bytes), label.properties));
}

PhysicalMemory::~PhysicalMemory() { close(descriptor_); }

}  // namespace pacecar::nccl::cpu
