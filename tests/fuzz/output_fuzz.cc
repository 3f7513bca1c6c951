// A benchmark's output of any bytes: no crash, and every named metric has a label.
#include "bench/ab/output_parser.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"

namespace pacecar::output_fuzz {

FUZZ_TARGET(output) {
  const auto parsed = ab::parse_output(fuzz::Input(data, size).text());
  for (const auto& [name, value] : parsed.metrics) {
    PACECAR_CHECK(!ab::metric_info(name).label.empty() || name.empty());
  }
  return 0;
}

}  // namespace pacecar::output_fuzz
