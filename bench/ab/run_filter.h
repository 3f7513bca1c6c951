// The runs that --filter selects. Pure.
#pragma once

#include <string>
#include <vector>

#include "bench/ab/experiment.h"

namespace pacecar::ab {

// The runs for which all filters hold, in order. A filter is "NAME=PATTERN" where NAME is arm, seed
// or a factor; * and ? in the pattern stand for any letters.
// Errors: kInvalidArgument for unknown names, and when nothing is left.
Result<std::vector<size_t>> filter_runs(const Experiment& experiment,
                                        const std::vector<std::string>& filters);

}  // namespace pacecar::ab
