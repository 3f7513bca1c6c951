// GPU memory for a Context. Chooses how each NIC uses it when the NIC is opened, and wraps the
// Context of the NICs accordingly: dma-buf exports, staged connections, flushes. Thread rule: one
// thread at a time; what apply() returns has a Context's rule.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "gdr/gpu_system.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/log.h"

namespace pacecar {

class GpuWays {
 public:
  GpuWays(GpuSetting setting, LogSink log) : setting_(setting), log_(log) {}

  // For each NIC: fills in the GPU members of `info`, and warns if the setting is impossible.
  void choose(const NicReach& nic, NicInfo& info);
  // `context` has the NICs of choose(). If they take only host memory, it is returned unchanged.
  std::unique_ptr<Context> apply(std::unique_ptr<Context> context) const;

 private:
  Result<std::span<const Gpu>> gpus();

  const GpuSetting setting_;
  const LogSink log_;
  std::optional<Result<std::shared_ptr<GpuSystem>>> system_;  // Loaded when the first NIC needs it.
};

}  // namespace pacecar
