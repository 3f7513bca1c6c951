// Preflight's parsers of the kernel's answers and files, with any bytes. The first byte chooses.
#include "bench/preflight/kernel_probes.h"
#include "bench/preflight/text.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"

namespace pacecar::kernel_fuzz {

FUZZ_TARGET(kernel) {
  fuzz::Input input(data, size);
  if (input.u8() % 2 == 0) {
    static_cast<void>(preflight::parse_pfc(std::as_bytes(input.rest())));
    return 0;
  }
  const std::string_view text = input.text();
  const auto ranges = preflight::parse_ranges(text);
  for (const auto& [first, last] : ranges) PACECAR_CHECK(first <= last);
  static_cast<void>(preflight::overlap(ranges, ranges));
  static_cast<void>(preflight::parse_number(text, 16));
  static_cast<void>(preflight::value_of(text, "Speed", ':'));
  static_cast<void>(preflight::is_pci_address(text));
  return 0;
}

}  // namespace pacecar::kernel_fuzz
