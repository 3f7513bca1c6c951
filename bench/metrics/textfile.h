// Metrics as a file for node_exporter's textfile collector, replaced as a whole.
#pragma once

#include <string>
#include <string_view>

#include "transport/base/result.h"

namespace pacecar::metrics {

// Readers see the file as it was or as it is, never a part. The name ends with ".prom", as the
// collector wants it. Errors: kInvalidArgument (the name), kSystem (what could not be written).
Result<void> replace_file(const std::string& path, std::string_view text);

}  // namespace pacecar::metrics
