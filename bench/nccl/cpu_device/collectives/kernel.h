// A launched kernel of NCCL: a fiber for each of its blocks.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/nccl/cpu_device/collectives/block.h"
#include "bench/nccl/cpu_device/collectives/function_table.h"
#include "bench/nccl/cpu_device/coroutine.h"

namespace pacecar::nccl::cpu {

// A copy of NCCL in this process: how its structures look, and what its function numbers mean.
struct Library {
  const Layout& layout;
  std::vector<Function> functions;
};

class Kernel {
 public:
  // `arguments` as for the launch (ncclDevKernelArgs and what follows); they are copied.
  Kernel(const Library& library, const char* arguments, size_t bytes, size_t blocks);

  // Lets each block continue; true when all have ended. Blocks end early after ncclCommAbort.
  bool advance() { return advance_all(blocks_); }

 private:
  Task run(const Library& library, size_t block) const;

  const std::vector<char> arguments_;
  std::vector<Fiber> blocks_;
};

}  // namespace pacecar::nccl::cpu
