// An accepted address is the same after to_string and parse_address.
#include "transport/base/check.h"
#include "transport/io/udp/parse_address.h"
#include "transport/wire/address.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto address = pacecar::parse_address(text)) {
    PACECAR_CHECK(pacecar::parse_address(pacecar::to_string(*address)) == *address);
  }
  return 0;
}
