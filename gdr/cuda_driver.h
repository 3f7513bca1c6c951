// CudaDriver: NVIDIA's driver library, loaded at run time. The build needs nothing of CUDA, and a
// host without it only lacks GPU memory.
//
// Thread rule: any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gdr/cuda_abi.h"
#include "transport/base/result.h"

namespace pacecar {

// The functions by name; those that are not required may be null.
struct CudaEntryPoints {
#define PACECAR_CUDA_ENTRY(member, symbol, required, ...) \
  cuda::Status (*member)(__VA_ARGS__) = nullptr;
#include "gdr/cuda_entry_points.def"
#undef PACECAR_CUDA_ENTRY
};

class CudaDriver {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // Loads and initialises the library, which is never unloaded again. Errors: kNotFound (no
  // library, or no GPU), kUnavailable (a required entry point is missing; names all that are),
  // kSystem (the driver cannot start).
  static Result<std::shared_ptr<const CudaDriver>> load(const std::string& library = kLibrary);

  const CudaEntryPoints* operator->() const { return &entries_; }
  int devices() const { return devices_; }

  // "cuMemHostAlloc failed (out of memory): <cure>"
  Error error(std::string_view call, cuda::Status status, std::string_view cure) const;

 private:
  Result<void> start();

  CudaEntryPoints entries_;
  int devices_ = 0;
};

}  // namespace pacecar
