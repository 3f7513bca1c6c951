// A script that makes the results of an experiment again.
#pragma once

#include <string>
#include <vector>

#include "bench/ab/results.h"

namespace pacecar::ab {

// Writes repro.sh. `argv` ("ab", ...) is the command line; it ran in `folder` with `plan` (a path,
// or empty for programs). Errors: kSystem.
Result<void> write_repro(const ResultsFolder& results, const std::vector<std::string>& argv,
                         const std::string& folder, const std::string& plan);

}  // namespace pacecar::ab
