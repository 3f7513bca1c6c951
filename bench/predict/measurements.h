// Measurements from the JSON that pacecar's tools write, and the constants that follow from them as
// TOML that `pacecar predict` reads.
#pragma once

#include <string>
#include <vector>

#include "net_plugin/predict/calibration.h"
#include "transport/base/result.h"

namespace pacecar::predict {

// Of `pacecar bw`, `pacecar lat` (--json) or collective_bench (--out_json_file). Errors: those of
// files; kInvalidArgument for a file of another kind.
Result<std::vector<Measured>> read_measurements(const std::string& path);

// [nic.NAME] and [protocol.Simple], and as a comment how well they fit.
std::string toml_of(const Calibration& found, size_t measurements);

}  // namespace pacecar::predict
