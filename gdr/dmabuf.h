// A GPU's memory as a dma-buf: a file descriptor by which a NIC's driver finds it.
//
// Thread rule: any thread.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <utility>

#include "gdr/cuda_driver.h"
#include "transport/base/result.h"

namespace pacecar {

// Owns an open file descriptor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }

 private:
  int fd_;
};

struct DmaBuf {
  FileDescriptor fd;    // a registration with a NIC outlives it
  uint64_t offset = 0;  // of the memory in it
};

// The pages of the host's size that hold [address, address + length). Errors: kUnavailable (the
// driver is too old), kSystem (it refuses).
Result<DmaBuf> export_dmabuf(const CudaDriver& driver, const void* address, size_t length);

}  // namespace pacecar
