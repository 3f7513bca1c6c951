// GPU memory for a Context: chooses each NIC's way when it is opened, and puts what that takes
// around the Context of the NICs: exports as dma-buf, staged connections, flushes.
//
// Thread rule: one thread at a time; what apply() returns is a Context.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "gdr/gpu_system.h"
#include "gdr/gpu_way.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/log.h"

namespace pacecar {

class GpuWays {
 public:
  GpuWays(GpuSetting setting, LogSink log) : setting_(setting), log_(log) {}

  // Of the next NIC: fills in what `info` says of GPU memory, and warns when what was asked for
  // cannot be had.
  void choose(const NicReach& nic, NicInfo& info);
  // `context` is of the NICs that were chosen for; where all take memory of the host only, it is
  // returned as it is.
  std::unique_ptr<Context> apply(std::unique_ptr<Context> context) const;

 private:
  Result<std::span<const Gpu>> gpus();

  const GpuSetting setting_;
  const LogSink log_;
  // Loaded when the first NIC needs it.
  std::optional<Result<std::shared_ptr<GpuSystem>>> system_;
};

}  // namespace pacecar
