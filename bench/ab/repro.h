// repro.sh: a script beside the results that makes them again.
#pragma once

#include <string>
#include <vector>

#include "bench/ab/results_folder.h"

namespace pacecar::ab {

// Of the command line `argv` ("ab", ...), which ran in `folder` with `plan` (a path, or empty for
// programs). Errors: kSystem.
Result<void> write_repro(const ResultsFolder& results, const std::vector<std::string>& argv,
                         const std::string& folder, const std::string& plan);

}  // namespace pacecar::ab
