// A fault configuration that is accepted is within its bounds.
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/io/decorators/fault.h"

namespace pacecar::fault_fuzz {

FUZZ_TARGET(fault) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto config = parse_fault(text)) {
    for (const double p : {config->loss, config->duplicate, config->corrupt, config->reorder}) {
      PACECAR_CHECK(p >= 0 && p <= 1);
    }
    for (const auto held : {config->delay, config->reorder_by}) {
      PACECAR_CHECK(held >= Duration() && held <= Duration::from_s(10));
    }
  }
  return 0;
}

}  // namespace pacecar::fault_fuzz
