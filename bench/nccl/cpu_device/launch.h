// NCCL's libraries in this process, and the kernels by which their host code refers to device code.
#pragma once

#include <cstddef>
#include <string>

#include "bench/nccl/cpu_device/gpu.h"

namespace pacecar::nccl::cpu {

// What a CUfunction points to here.
struct KernelSymbol {
  std::string name;            // as the linker knows it
  const struct Library* nccl;  // whose it is; nullptr: of an unknown version
};

// The kernel whose stub in the host code is at `stub`; nullptr when none was registered there.
const KernelSymbol* kernel_at(const void* stub);

// Puts a kernel into the stream; false when it cannot run here (a sentence is on stderr).
bool launch(const KernelSymbol& kernel, const char* arguments, size_t bytes, size_t blocks,
            Stream& stream);

}  // namespace pacecar::nccl::cpu
