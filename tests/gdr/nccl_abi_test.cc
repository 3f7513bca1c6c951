// Compares the benchmark's declarations of NCCL and of CUDA's driver with NVIDIA's headers, where
// those are installed: compiling is the test.
#include <cuda.h>
#include <nccl.h>

#include <type_traits>

#include "bench/nccl/gpu/libraries.h"

namespace pacecar::nccl::nccl_abi_test {
namespace {

// Whether the calling convention passes both types alike: our int stands for NVIDIA's enums.
template <typename Theirs, typename Ours>
constexpr bool passes_alike() {
  if constexpr (std::is_enum_v<Theirs>) {
    return sizeof(Theirs) == sizeof(Ours) && std::is_integral_v<Ours>;
  } else if constexpr (std::is_pointer_v<Theirs>) {
    return std::is_pointer_v<Ours>;
  } else if constexpr (std::is_class_v<Theirs>) {
    return std::is_class_v<Ours> && sizeof(Theirs) == sizeof(Ours);
  } else {
    return std::is_same_v<Theirs, Ours>;
  }
}

template <typename Result, typename... Theirs, typename... Ours>
constexpr bool same_call(Result (*)(Theirs...), int (*)(Ours...)) {
  if constexpr (sizeof...(Theirs) == sizeof...(Ours)) {
    return std::is_enum_v<Result> && (passes_alike<Theirs, Ours>() && ...);
  } else {
    return false;
  }
}

#define PACECAR_SAME_DRIVER_CALL(member, symbol, ...) \
  static_assert(same_call(decltype (&symbol)(nullptr), decltype(Driver::member)(nullptr)));
#define PACECAR_SAME_NCCL_CALL(member, symbol, ...) \
  static_assert(same_call(decltype (&symbol)(nullptr), decltype(Nccl::member)(nullptr)));
PACECAR_DRIVER_CALLS(PACECAR_SAME_DRIVER_CALL)
PACECAR_NCCL_CALLS(PACECAR_SAME_NCCL_CALL)

static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId));
static_assert(ncclSuccess == kSuccess && CUDA_SUCCESS == kSuccess);
static_assert(CUDA_ERROR_NOT_READY == kNotReady);
static_assert(ncclFloat == kFloat && ncclSum == kSum);

}  // namespace
}  // namespace pacecar::nccl::nccl_abi_test
