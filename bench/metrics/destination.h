// Where `pacecar metrics` puts its page: an address at which it listens, or a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/result.h"

namespace pacecar::metrics {

constexpr uint16_t kDefaultPort = 18516;  // next to that of `pacecar bw`

struct Address {
  std::string host = "127.0.0.1";
  uint16_t port = kDefaultPort;  // 0: any that is free
};

// Parses "9000", "node1:9000", "[::1]:9000", "192.0.2.1"; empty: the default. Errors:
// kInvalidArgument.
Result<Address> parse_address(std::string_view text);

// Whether only this host can reach the address.
bool is_loopback(const Address& address);

// "127.0.0.1:9000", "[::1]:9000"
std::string to_string(const Address& address);

// Replaces a file for node_exporter's textfile collector atomically. Its name must end with
// ".prom", as the collector reads no other files. Errors: kInvalidArgument (the name), kSystem.
Result<void> replace_file(const std::string& path, std::string_view text);

}  // namespace pacecar::metrics
