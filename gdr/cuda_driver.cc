#include "gdr/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

constexpr std::string_view kNoGpu =
    "the driver finds no GPU: `nvidia-smi -L` lists them, and a container needs them passed "
    "through (--gpus all)";

std::string reason() {
  return fmt::format(
      "NVIDIA's driver library is not there ({}): install the driver, or pass the "
      "GPUs through to the container",
      dlerror());
}

// Looks up all entry points; returns the names of the required ones that are missing.
std::string resolve(void* library, CudaEntryPoints& entries) {
  std::string missing;
  const auto find = [&](auto& entry, const char* symbol, bool required) {
    entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(dlsym(library, symbol));
    if (entry == nullptr && required)
      missing += (missing.empty() ? "" : ", ") + std::string(symbol);
  };
#define PACECAR_CUDA_ENTRY(member, symbol, required, ...) find(entries.member, #symbol, required);
#include "gdr/cuda_entry_points.def"
#undef PACECAR_CUDA_ENTRY
  return missing;
}

}  // namespace

Result<std::shared_ptr<const CudaDriver>> CudaDriver::load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return fail(ErrorCode::kNotFound, reason());
  const auto driver = std::make_shared<CudaDriver>();
  if (const std::string missing = resolve(handle, driver->entries_); !missing.empty()) {
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("NVIDIA's driver library lacks {}: bring the driver up to date", missing));
  }
  const cuda::Status status = driver->entries_.init(0);
  if (status != cuda::kErrorNoDevice) {
    RETURN_IF_ERROR(driver->check("cuInit", status, "`nvidia-smi` shows whether the driver works"));
  }
  const bool counted = status != cuda::kErrorNoDevice &&
                       driver->entries_.device_count(&driver->devices_) == cuda::kSuccess;
  if (!counted || driver->devices_ == 0) {
    return fail(ErrorCode::kNotFound, std::string(kNoGpu));
  }
  return driver;
}

Result<void> CudaDriver::check(std::string_view call, cuda::Status status,
                               std::string_view cure) const {
  if (status == cuda::kSuccess) return {};
  const char* text = nullptr;
  if (entries_.error_string(status, &text) != cuda::kSuccess || text == nullptr) text = "unknown";
  return fail(ErrorCode::kSystem, fmt::format("{} failed ({}, {}): {}", call, text, status, cure));
}

}  // namespace pacecar
