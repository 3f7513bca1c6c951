// Compares our declarations of the driver's interface with NVIDIA's header, where that is
// installed: compiling is the test.
#include <cuda.h>

#include <type_traits>

#include "gdr/cuda_driver.h"

namespace pacecar::cuda_abi_test {
namespace {

static_assert(sizeof(CUresult) == sizeof(cuda::Status) && sizeof(CUdevice) == sizeof(cuda::Device));
static_assert(std::is_same_v<CUdeviceptr, cuda::DevicePointer>);
static_assert(std::is_pointer_v<CUcontext> && std::is_pointer_v<CUstream> &&
              std::is_pointer_v<CUevent>);

static_assert(CUDA_SUCCESS == cuda::kSuccess && CUDA_ERROR_NO_DEVICE == cuda::kErrorNoDevice &&
              CUDA_ERROR_NOT_READY == cuda::kErrorNotReady &&
              CUDA_ERROR_OUT_OF_MEMORY == cuda::kErrorOutOfMemory);
static_assert(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED == cuda::kAttributeRdmaSupported);
static_assert(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS ==
              cuda::kAttributeFlushOptions);
static_assert(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING ==
              cuda::kAttributeWritesOrdering);
static_assert(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED == cuda::kAttributeDmaBufSupported);
static_assert(CU_POINTER_ATTRIBUTE_MEMORY_TYPE == cuda::kPointerMemoryType &&
              CU_POINTER_ATTRIBUTE_BUFFER_ID == cuda::kPointerBufferId &&
              CU_POINTER_ATTRIBUTE_IS_MANAGED == cuda::kPointerIsManaged &&
              CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == cuda::kPointerDeviceOrdinal &&
              CU_POINTER_ATTRIBUTE_RANGE_START_ADDR == cuda::kPointerRangeStart &&
              CU_POINTER_ATTRIBUTE_RANGE_SIZE == cuda::kPointerRangeSize);
static_assert(CU_MEMORYTYPE_DEVICE == cuda::kMemoryTypeDevice);
static_assert(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD == cuda::kHandleDmaBuf);
static_assert(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST == cuda::kFlushOptionHost);
static_assert(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ==
              cuda::kFlushTargetCurrentContext);
static_assert(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER == cuda::kFlushScopeOwner);
static_assert(CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER == cuda::kOrderingOwner);
static_assert(CU_MEMHOSTALLOC_PORTABLE == cuda::kHostMemoryPortable);
static_assert(CU_STREAM_NON_BLOCKING == cuda::kStreamNonBlocking);
static_assert(CU_EVENT_DISABLE_TIMING == cuda::kEventWithoutTiming);

// Whether the calling convention passes both types alike: our int stands for NVIDIA's enums.
template <typename Theirs, typename Ours>
constexpr bool passes_alike() {
  if constexpr (std::is_enum_v<Theirs>) {
    return sizeof(Theirs) == sizeof(Ours) && std::is_integral_v<Ours>;
  } else if constexpr (std::is_pointer_v<Theirs>) {
    return std::is_pointer_v<Ours>;
  } else {
    return std::is_same_v<Theirs, Ours>;
  }
}

template <typename... Theirs, typename... Ours>
constexpr bool same_call(CUresult (*)(Theirs...), cuda::Status (*)(Ours...)) {
  if constexpr (sizeof...(Theirs) == sizeof...(Ours)) {
    return (passes_alike<Theirs, Ours>() && ...);
  } else {
    return false;
  }
}

// cuda.h maps names to exported symbols by macros; our list has the exported names with their
// suffix.
#define PACECAR_CUDA_ENTRY(member, symbol, required, ...)                       \
  static_assert(same_call(static_cast<decltype(&::symbol)>(nullptr),            \
                          static_cast<cuda::Status (*)(__VA_ARGS__)>(nullptr)), \
                #symbol);
#include "gdr/cuda_entry_points.def"
#undef PACECAR_CUDA_ENTRY

}  // namespace
}  // namespace pacecar::cuda_abi_test
