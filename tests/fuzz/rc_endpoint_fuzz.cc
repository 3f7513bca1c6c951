// The decoder of RC queue pair addresses: what it accepts must encode to the bytes that it got.
#include <algorithm>

#include "transport/base/check.h"
#include "transport/nic/rc_endpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> input(data, size);
  if (const auto endpoint = pacecar::decode_rc_endpoint(input)) {
    PACECAR_CHECK(std::ranges::equal(encode(*endpoint).view(), input));
  }
  return 0;
}
