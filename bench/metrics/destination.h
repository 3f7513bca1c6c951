// Where `pacecar metrics` puts its page: an address at which it listens, or a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/wire/packet.h"

namespace pacecar::metrics {

constexpr uint16_t kDefaultPort = 18516;  // next to that of `pacecar bw`

// "9000" (at 127.0.0.1), "192.0.2.1:9000", "[::1]:9000"; empty: the default port at 127.0.0.1. Port
// 0: any that is free. Errors: kInvalidArgument.
Result<Address> listen_address(std::string_view text);

// Replaces a file for node_exporter's textfile collector atomically. Its name must end with
// ".prom", as the collector reads no other files. Errors: kInvalidArgument (the name), kSystem.
Result<void> replace_file(const std::string& path, std::string_view text);

}  // namespace pacecar::metrics
