// An accepted address has endpoints, and encodes to the same bytes.
#include <algorithm>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/ofi/address.h"

namespace pacecar::ofi_address_fuzz {

FUZZ_TARGET(ofi_address) {
  const std::span input(data, size);
  const auto address = decode_ofi_address(input);
  if (!address) return 0;
  PACECAR_CHECK(!address->endpoints.empty());
  // The bootstrap never passes on an address longer than kMaxBytes.
  if (size > QueuePairAddress::kMaxBytes) return 0;
  PACECAR_CHECK(std::ranges::equal(encode(*address).view(), input));
  return 0;
}

}  // namespace pacecar::ofi_address_fuzz
