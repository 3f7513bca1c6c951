// A fault configuration that is accepted is within its bounds.
#include "transport/base/check.h"
#include "transport/io/decorators/fault.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto config = pacecar::parse_fault(text)) {
    for (const double p : {config->loss, config->duplicate, config->corrupt, config->reorder}) {
      PACECAR_CHECK(p >= 0 && p <= 1);
    }
    for (const auto held : {config->delay, config->reorder_by}) {
      PACECAR_CHECK(held >= pacecar::Duration() && held <= pacecar::Duration::from_s(10));
    }
    PACECAR_CHECK(config->on_send || config->on_receive);
  }
  return 0;
}
