// A benchmark's output of any bytes: no crash, and every named metric has a label.
#include "bench/ab/output_parser.h"
#include "tests/fuzz/fuzz_input.h"
#include "transport/base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pacecar;
  const auto parsed = ab::parse_output(fuzz::Input(data, size).text());
  for (const auto& [name, value] : parsed.metrics) {
    PACECAR_CHECK(!ab::metric_info(name).label.empty() || name.empty());
  }
  return 0;
}
