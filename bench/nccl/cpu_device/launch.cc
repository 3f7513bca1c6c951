#include "bench/nccl/cpu_device/launch.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "bench/nccl/cpu_device/collectives/kernel.h"
#include "bench/nccl/cpu_device/collectives/reduction.h"
#include "bench/nccl/cpu_device/exported.h"
#include "bench/nccl/cpu_device/memory.h"
#include "bench/nccl/cpu_device/settings.h"

namespace pacecar::nccl::cpu {
namespace {

struct Kernels {
  std::mutex mutex;
  std::map<const void*, KernelSymbol> by_stub;
};

Kernels& kernels() {
  static Kernels& all = *new Kernels;
  return all;
}

}  // namespace

const KernelSymbol* kernel_at(const void* stub) {
  const std::lock_guard lock(kernels().mutex);
  const auto found = kernels().by_stub.find(stub);
  return found == kernels().by_stub.end() ? nullptr : &found->second;
}

bool launch(const KernelSymbol& kernel, const char* arguments, size_t bytes, size_t blocks,
            Stream& stream) {
  if (kernel.nccl == nullptr || kernel.name.find("ncclDevKernel_") == std::string::npos) {
    std::fprintf(stderr, "cpu_device: the kernel %s is not played here\n", kernel.name.c_str());
    return false;
  }
  if (settings().log) {
    std::fprintf(stderr, "cpu_device: %s, %zu blocks\n", kernel.name.c_str(), blocks);
  }
  stream.gpu().enqueue_made(
      stream,
      [&library = *kernel.nccl, kept = std::vector(arguments, arguments + bytes),
       blocks]() -> Command {
        return [running = std::make_shared<Kernel>(library, kept.data(), kept.size(), blocks)] {
          return running->advance();
        };
      });
  return true;
}

}  // namespace pacecar::nccl::cpu

using namespace pacecar::nccl::cpu;

// What `link_nccl` puts into an NCCL library calls these when the library is loaded.

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
  Stream& stream = stream_of(stream_handle);
  stream.gpu().enqueue(stream, [=] {
    uint64_t scalar = operand;
    if (operand_is_pointer) {
      std::memcpy(&scalar, view(reinterpret_cast<const void*>(operand)), size_of(element_type));
    }
    std::memmove(view(to), view(from), elements * size_of(element_type));
    if (kind == Reduction::kPreMultipliedSum) {
      Arithmetic(kind, element_type, scalar, false).prepare(view(to), elements);
    }
    return true;
  });
}
