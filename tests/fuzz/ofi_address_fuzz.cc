// An accepted address has endpoints, and encodes to the same bytes.
#include <algorithm>

#include "transport/base/check.h"
#include "transport/ofi/address.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span input(data, size);
  const auto address = pacecar::decode_ofi_address(input);
  if (!address) return 0;
  PACECAR_CHECK(!address->endpoints.empty());
  // The bootstrap never passes on an address longer than kMaxBytes.
  if (size > pacecar::QueuePairAddress::kMaxBytes) return 0;
  PACECAR_CHECK(std::ranges::equal(pacecar::encode(*address).view(), input));
  return 0;
}
