// Addresses as people read them.
// Pure; any thread.
#pragma once

#include <string>

#include "transport/wire/packet.h"

namespace pacecar {

// "192.0.2.1:4791" for an IPv4-mapped address, "[2001:db8::1]:4791" for IPv6, and
// "[fe80::1%3]:4791" where a scope (an interface index) is set.
std::string to_string(const Address& address);

}  // namespace pacecar
