// The label, unit and direction of a metric by its name, of simulations and of real programs.
// "fct_p99_us@bulk" is fct_p99_us of one part: a job, a message size. Pure.
#pragma once

#include <string>

#include "bench/sim/metrics.h"

namespace pacecar::ab {

struct MetricInfo {
  std::string label;  // a phrase; of an unknown metric its name
  std::string unit;
  Better better = Better::kNeither;
};

MetricInfo metric_info(const std::string& name);

}  // namespace pacecar::ab
