// The memory of this end's messages: the host's or a GPU's.
#pragma once

#include <memory>

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

}  // namespace pacecar::perf
