// The properties of a metric by its name, of simulations and of real programs. "fct_p99_us@bulk" is
// fct_p99_us of one part: a job, a message size.
#pragma once

#include <string>
#include <string_view>

#include "bench/sim/metrics.h"

namespace pacecar::ab {

struct MetricInfo {
  std::string name;
  std::string label;  // a phrase
  std::string unit;
  Better better = Better::kNeither;
};

// An unknown name is its own label.
MetricInfo metric_info(const std::string& name);

// "lower", "higher", "".
std::string_view text_of(Better better);

}  // namespace pacecar::ab
