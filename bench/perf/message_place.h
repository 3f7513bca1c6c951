// Where the messages of this end lie: in the host's memory, or a GPU's.
#pragma once

#include <memory>
#include <string>

#include "bench/perf/options.h"
#include "gdr/staging.h"
#include "transport/base/result.h"

namespace pacecar::perf {

struct MessagePlace {
  bool huge_pages = false;                // of the host's memory
  std::shared_ptr<const CopyEngine> gpu;  // null: the host's memory
  bool dma_buf = false;                   // the GPU's memory is registered as one
};

// Errors: kNotFound (no driver, no such GPU), kSystem.
Result<MessagePlace> find_place(const TestOptions& options);

// A GPU's PCI address as sysfs has it, 0000:3b:00.0, however it is written: nvidia-smi writes
// 00000000:3B:00.0, lspci 3b:00.0.
std::string sysfs_bus_id(std::string_view text);

}  // namespace pacecar::perf
