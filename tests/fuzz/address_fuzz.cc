// An accepted address is the same after to_string and parse_address.
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/io/udp/parse_address.h"
#include "transport/wire/address.h"

namespace pacecar::address_fuzz {

FUZZ_TARGET(address) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto address = parse_address(text)) {
    PACECAR_CHECK(parse_address(to_string(*address)) == *address);
  }
  return 0;
}

}  // namespace pacecar::address_fuzz
