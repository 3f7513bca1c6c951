// NCCL's libraries in this process, the kernels by which their host code refers to device code, and
// how kernels start.
#include <sched.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bench/nccl/cpu_device/calls.h"
#include "bench/nccl/cpu_device/collectives/kernel.h"
#include "bench/nccl/cpu_device/collectives/reduction.h"
#include "bench/nccl/cpu_device/memory.h"
#include "bench/nccl/cpu_device/settings.h"

using namespace pacecar::nccl::cpu;

namespace {

// What a CUfunction points to here.
struct KernelSymbol {
  std::string name;     // as the linker knows it
  const Library* nccl;  // whose it is; nullptr: of an unknown version
};

struct Kernels {
  std::mutex mutex;
  std::map<const void*, KernelSymbol> by_stub;
};

Kernels& kernels() {
  static Kernels& all = *new Kernels;
  return all;
}

// The kernel whose stub in the host code is at `stub`; nullptr when none was registered there.
const KernelSymbol* kernel_at(const void* stub) {
  const std::lock_guard lock(kernels().mutex);
  const auto found = kernels().by_stub.find(stub);
  return found == kernels().by_stub.end() ? nullptr : &found->second;
}

Status not_played(const char* kernel) {
  std::fprintf(stderr, "cpu_device: the kernel %s is not played here\n", kernel);
  return kNotSupported;
}

}  // namespace

// --- CUDA's functions of kernels ---

CPU_DEVICE_EXPORT int cudaFuncGetAttributes(char* attributes, const void*) {
  constexpr size_t kBytes = 52;  // of cudaFuncAttributes that every version has
  constexpr int kThreads = 1024;
  std::memset(attributes, 0, kBytes);
  std::memcpy(attributes + 24, &kThreads, sizeof(kThreads));
  return kSuccess;
}
CPU_DEVICE_NOTHING_TO_DO(cudaFuncSetAttribute)

CPU_DEVICE_EXPORT int cudaGetFuncBySymbol(void** function, const void* stub) {
  *function = const_cast<KernelSymbol*>(kernel_at(stub));
  return *function != nullptr ? kSuccess : kInvalidHandle;
}

// Refuses a program's own kernel; NCCL launches by cuLaunchKernelEx.
CPU_DEVICE_EXPORT int cudaLaunchKernel(const void* stub) {
  const KernelSymbol* const kernel = kernel_at(stub);
  return not_played(kernel != nullptr ? kernel->name.c_str() : "of this program");
}

CPU_DEVICE_EXPORT int cuLaunchKernelEx(const void* configuration, void* function, void**,
                                       void** extra) {
  // CUlaunchConfig: three dimensions of the grid, three of a block, shared memory, the stream.
  const auto* const config = static_cast<const char*>(configuration);
  unsigned blocks = 0;
  void* stream = nullptr;
  std::memcpy(&blocks, config, sizeof(blocks));
  std::memcpy(&stream, config + 32, sizeof(stream));
  // `extra`: pairs of a kind and an address.
  constexpr uintptr_t kEnd = 0;
  constexpr uintptr_t kBuffer = 1;
  const char* arguments = nullptr;
  size_t bytes = 0;
  for (void** each = extra; each && reinterpret_cast<uintptr_t>(each[0]) != kEnd; each += 2) {
    if (reinterpret_cast<uintptr_t>(each[0]) == kBuffer) {
      arguments = static_cast<const char*>(each[1]);
    } else {
      bytes = *static_cast<const size_t*>(each[1]);
    }
  }
  if (arguments == nullptr || function == nullptr) return kNotSupported;
  const auto& kernel = *static_cast<const KernelSymbol*>(function);
  if (kernel.nccl == nullptr || kernel.name.find("ncclDevKernel_") == std::string::npos) {
    return not_played(kernel.name.c_str());
  }
  if (settings().log) {
    std::fprintf(stderr, "cpu_device: %s, %u blocks\n", kernel.name.c_str(), blocks);
  }
  Stream& when = stream_of(stream);
  when.gpu().enqueue_made(
      when,
      [&library = *kernel.nccl, kept = std::vector(arguments, arguments + bytes),
       blocks]() -> Command {
        return [running = std::make_shared<Kernel>(library, kept.data(), kept.size(), blocks)] {
          return running->advance();
        };
      });
  return kSuccess;
}

// --- called by code that linked.py links into NCCL ---

// When the library is loaded.
CPU_DEVICE_EXPORT const void* cpu_device_add_nccl(int version, const int* function_rows) {
  const Layout* const layout = layout_of(version);
  if (layout == nullptr) {
    std::fprintf(stderr, "cpu_device: NCCL %d.%d.%d is not known here; known are %s\n",
                 version / 10000, version / 100 % 100, version % 100, known_versions());
    return nullptr;
  }
  return new Library{*layout, function_table(*layout, function_rows)};
}

CPU_DEVICE_EXPORT void cpu_device_add_kernel(const void* library, const void* stub,
                                             const char* name) {
  const std::lock_guard lock(kernels().mutex);
  kernels().by_stub[stub] = {name, static_cast<const Library*>(library)};
}

// In the place of sched_yield, which NCCL's threads call where they have found nothing to do. Calls
// that follow one another at once are one wait.
CPU_DEVICE_EXPORT int cpu_device_yield() {
  if (settings().spins) return sched_yield();
  constexpr std::chrono::microseconds kAtOnce{100};
  static thread_local Patience patience;
  static thread_local std::chrono::steady_clock::time_point last;
  const auto now = std::chrono::steady_clock::now();
  if (now - last > kAtOnce) patience.reset();
  patience.wait();
  last = std::chrono::steady_clock::now();
  return 0;
}

// ncclLaunchOneRank: the collective of a communicator of one rank is a copy, multiplied by a scalar
// if the reduction asks for that.
CPU_DEVICE_EXPORT void cpu_device_one_rank(void* to, const void* from, size_t elements,
                                           int reduction, bool operand_is_pointer, uint64_t operand,
                                           int type, void* stream_handle) {
  const auto element_type = static_cast<Type>(type);
  const auto kind = static_cast<Reduction>(reduction);
  enqueue(stream_of(stream_handle), [=] {
    uint64_t scalar = operand;
    if (operand_is_pointer) {
      std::memcpy(&scalar, view(reinterpret_cast<const void*>(operand)), size_of(element_type));
    }
    std::memmove(view(to), view(from), elements * size_of(element_type));
    if (kind == Reduction::kPreMultipliedSum) {
      Arithmetic(kind, element_type, scalar, false).prepare(view(to), elements);
    }
  });
}
