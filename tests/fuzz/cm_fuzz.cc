// A connection matrix of any bytes: no crash, and an accepted one is the same after it is written
// and read again.
#include <cstdint>
#include <string>
#include <string_view>

#include "bench/workload/cm_file.h"
#include "bench/workload/workload.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/workload_text.h"
#include "transport/base/check.h"

namespace pacecar::cm_fuzz {

FUZZ_TARGET(cm) {
  const auto workload = parse_cm({reinterpret_cast<const char*>(data), size}, "fuzz.cm");
  if (!workload) return 0;
  busiest_host_bytes(*workload);
  const std::string written = write_cm(*workload);
  const auto again = parse_cm(written, "fuzz.cm");
  PACECAR_CHECK(again.has_value());
  PACECAR_CHECK(write_cm(*again) == written);
  return 0;
}

}  // namespace pacecar::cm_fuzz
