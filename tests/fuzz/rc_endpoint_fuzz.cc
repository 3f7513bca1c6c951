// The decoder of RC queue pair addresses: an accepted address must encode to the same bytes.
#include <algorithm>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/nic/rc_endpoint.h"

namespace pacecar::rc_endpoint_fuzz {

FUZZ_TARGET(rc_endpoint) {
  const std::span<const uint8_t> input(data, size);
  if (const auto endpoint = decode_rc_endpoint(input)) {
    PACECAR_CHECK(std::ranges::equal(encode(*endpoint).view(), input));
  }
  return 0;
}

}  // namespace pacecar::rc_endpoint_fuzz
