#include "gdr/dmabuf.h"

#include "transport/base/return_if_error.h"

namespace pacecar {

Result<DmaBuf> export_dmabuf(const CudaDriver& driver, const void* address, size_t length) {
  if (driver->range_handle == nullptr) {
    return fail(ErrorCode::kUnavailable,
                "the NVIDIA driver exports no dma-bufs: use one of CUDA 11.7 or later, or load "
                "nvidia_peermem (modprobe nvidia-peermem)");
  }
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uint64_t>(address);
  const uint64_t first = begin & ~(page - 1);
  const uint64_t end = (begin + length + page - 1) & ~(page - 1);
  int fd = -1;
  RETURN_IF_ERROR(driver.check(
      "cuMemGetHandleForAddressRange",
      driver->range_handle(&fd, first, end - first, cuda::kHandleDmaBuf, 0),
      "use NVIDIA's open kernel modules and Linux 5.12, or load nvidia_peermem (modprobe "
      "nvidia-peermem)"));
  return DmaBuf{FileDescriptor(fd), begin - first};
}

}  // namespace pacecar
