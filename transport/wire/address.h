// Addresses as text. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "transport/wire/packet.h"

namespace pacecar {

// The prefix of an IPv4-mapped address, ::ffff:0:0/96.
inline constexpr std::array<uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

bool is_ipv4(const Address& address);         // True for ::ffff:a.b.c.d.
bool is_unspecified(const Address& address);  // True for 0.0.0.0 and ::.
bool is_loopback(const Address& address);     // True for 127.0.0.0/8 and ::1.
bool is_link_local(const Address& address);   // True for fe80::/10.

// "192.0.2.1" if IPv4-mapped, "2001:db8::1" for IPv6, "fe80::1%3" with a scope (interface index).
std::string ip_to_string(const Address& address);

// The same with the port: "192.0.2.1:4791", "[fe80::1%3]:4791".
std::string to_string(const Address& address);

}  // namespace pacecar
