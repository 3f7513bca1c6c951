// Reads addresses as people write them: "192.0.2.1:18515", "[2001:db8::1]:18515",
// "[fe80::1%eth0]:18515", "[fe80::1%3]:18515". The opposite is to_string in wire/address.h.
// Scopes are looked up among this machine's interfaces. Thread rule: any thread.
#pragma once

#include <string_view>

#include "transport/base/result.h"
#include "transport/wire/packet.h"

namespace pacecar {

// Numeric addresses only, always with a port: names are not resolved.
Result<Address> parse_address(std::string_view text);

}  // namespace pacecar
