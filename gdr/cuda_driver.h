// CudaDriver: NVIDIA's driver library, loaded at run time. A build needs neither CUDA's headers nor
// its libraries, and a host without the library lacks support for GPU memory only. Any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gdr/cuda_abi.h"
#include "transport/base/result.h"

namespace pacecar {

// The library's functions; a function that is not required may be null.
struct CudaEntryPoints {
#define PACECAR_CUDA_ENTRY(member, symbol, required, ...) \
  cuda::Status (*member)(__VA_ARGS__) = nullptr;
#include "gdr/cuda_entry_points.def"
#undef PACECAR_CUDA_ENTRY
};

class CudaDriver {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // Loads and initialises the library, which is never unloaded. Errors: kNotFound (no library, no
  // GPU, or a build without CUDA), kUnavailable (required entry points are missing; the error names
  // them), kSystem (the driver cannot start).
  static Result<std::shared_ptr<const CudaDriver>> load(const std::string& library = kLibrary);

  const CudaEntryPoints* operator->() const { return &entries_; }
  int devices() const { return devices_; }

  // `status` as a result; `call`: the function that returned it. Error: kSystem, such as
  // "cuMemHostAlloc failed (out of memory, 2): <cure>".
  Result<void> check(std::string_view call, cuda::Status status, std::string_view cure) const;

 private:
  CudaEntryPoints entries_;
  int devices_ = 0;
};

}  // namespace pacecar
