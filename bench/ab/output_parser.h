// Finds the figures in the output of a benchmark: the columns of perftest (ib_write_bw,
// ib_send_lat, ...) and of `pacecar bw` and `lat`, nccl-tests (the table and its average), and any
// program whose last line is {"metrics": {"NAME": NUMBER, ...}}. Pure; takes any output.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/sim/metrics.h"

namespace pacecar::ab {

struct ParsedOutput {
  // Names as metric_info() knows them; "@SIZE" is added when there are several message sizes.
  std::map<std::string, double> metrics;
  std::vector<std::string> headline;  // those to compare when nobody names any
};

// Nothing found: both empty.
ParsedOutput parse_output(std::string_view output);

// The label, unit and direction of a metric by its name, of simulations and of real programs.
// "fct_p99_us@bulk" is fct_p99_us of one part: a job, a message size.
struct MetricInfo {
  std::string label;  // a phrase; of an unknown metric its name
  std::string unit;
  Better better = Better::kNeither;
};

MetricInfo metric_info(const std::string& name);

}  // namespace pacecar::ab
