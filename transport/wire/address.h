// Addresses as people read them. Pure; any thread.
#pragma once

#include <string>

#include "transport/wire/packet.h"

namespace pacecar {

// "192.0.2.1" for an IPv4-mapped address, "2001:db8::1" for IPv6, "fe80::1%3" where a scope (an
// interface index) is set.
std::string ip_to_string(const Address& address);

// The same with the port: "192.0.2.1:4791", "[fe80::1%3]:4791".
std::string to_string(const Address& address);

}  // namespace pacecar
