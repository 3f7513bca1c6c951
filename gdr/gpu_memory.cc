#include "gdr/gpu_memory.h"

#include <array>

#include "transport/base/return_if_error.h"

namespace pacecar {

Result<PointerKind> kind_of_pointer(const CudaDriver& driver, const void* pointer) {
  unsigned type = 0;
  unsigned managed = 0;
  int device = 0;
  cuda::DevicePointer base = 0;
  size_t size = 0;
  unsigned long long allocation = 0;
  std::array<int, 6> attributes{cuda::kPointerMemoryType,    cuda::kPointerIsManaged,
                                cuda::kPointerDeviceOrdinal, cuda::kPointerRangeStart,
                                cuda::kPointerRangeSize,     cuda::kPointerBufferId};
  std::array<void*, 6> values{&type, &managed, &device, &base, &size, &allocation};
  RETURN_IF_ERROR(
      driver.check("cuPointerGetAttributes",
                   driver->pointer_attributes(attributes.size(), attributes.data(), values.data(),
                                              reinterpret_cast<cuda::DevicePointer>(pointer)),
                   "pass memory that is allocated"));
  return PointerKind{.cuda = type == cuda::kMemoryTypeDevice,
                     .managed = managed != 0,
                     .device = device,
                     .base = base,
                     .size = size,
                     .allocation = allocation};
}

Result<PointerKind> kind_of_gpu_range(const CudaDriver& driver, const void* pointer,
                                      size_t length) {
  ASSIGN_OR_RETURN(auto kind, kind_of_pointer(driver, pointer));
  const auto begin = reinterpret_cast<uint64_t>(pointer);
  const uint64_t last = begin + (length > 0 ? length - 1 : 0);
  ASSIGN_OR_RETURN(const auto end, kind_of_pointer(driver, reinterpret_cast<const void*>(last)));
  if (last < begin || !kind.cuda || !end.cuda || kind.device != end.device) {
    return fail(ErrorCode::kInvalidArgument,
                "memory that was given as a GPU's is not, or not all of it: pass what cudaMalloc "
                "returned, with its size");
  }
  if (kind.allocation != end.allocation) kind.allocation = 0;
  return kind;
}

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

std::optional<std::string> peer_memory_module(const std::filesystem::path& root) {
  std::error_code ignored;
  for (const char* name : {"nvidia_peermem", "nv_peer_mem"}) {
    if (std::filesystem::exists(root / "sys/module" / name, ignored)) return name;
  }
  return std::nullopt;
}

}  // namespace pacecar
