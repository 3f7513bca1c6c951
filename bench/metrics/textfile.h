// Metrics as a file for node_exporter's textfile collector, replaced as a whole.
#pragma once

#include <string>
#include <string_view>

#include "transport/base/result.h"

namespace pacecar::metrics {

// Replaces the file atomically. Its name must end with ".prom", as the collector reads no other
// files. Errors: kInvalidArgument (the name), kSystem.
Result<void> replace_file(const std::string& path, std::string_view text);

}  // namespace pacecar::metrics
