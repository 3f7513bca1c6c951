// The data of the report, as one JSON object: the experiment, the figures of each cell and run,
// comparisons, thresholds. The report's page draws them and computes no statistics.
//
// Schema (times in microseconds, rates in Gb/s, null: unknown or not done):
//   schema_version, kind ("simulation", "programs"), name, description, baseline (an arm)
//   provenance {version, commit, date, kernel, host, cpu, cpus, compiler, command_line,
//               environment {PACECAR_*: value}}
//   arms [{name, settings}]   factors [{name, values []}]   seeds []
//   metrics [{name, label, unit, better ("lower", "higher", "")}]   shown [metric]
//   cells [{arm, factors {factor: value}, runs [index], failed,
//           metrics {metric: {n, mean, median, min, max}}, fct_cdf_us {x [], y []} or null,
//           slowdown_by_size [{bytes_min, bytes_max, n, p50, p99}]}]:
//     one per arm and combination of factor values
//   runs [{index, cell, seed, ok, error, metrics {}, detail}]; detail is kept of the first run of
//     each cell that has one, null for the others:
//       queue series in bytes, rates [series], fairness series or null,
//       limits [{name, rate series, interval_us, allowed [], grant [], core [],
//                limited_by [[index, reason]]}]: some flows, in Gb/s: at each sample the rate, and
//         the grant and the core limit (an empty list: it did not apply). limited_by: the samples
//         at which the reason changes, to "line", "grant", "network", "budget", "host" or
//         "application",
//       links [{from, to, gbps, utilisation, queue_max_bytes, marked, trimmed, dropped,
//               paused_us}], figures that are 0 left out
//     series: {name, interval_us, values []}
//   comparisons [{factors {}, metric, arm, baseline, n, arm_mean, baseline_mean, difference, low,
//                 high, interval ("bootstrap", "student", ""), ratio, cohens_d, p,
//                 p_holm, verdict, better (bool or null)}]
//   thresholds [{text, expected, reference, measured, deviation, undone, passed}]
//   undone: a sentence about the runs that failed or did not finish, empty without any
//   identical [{arms [name], text}]
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/results.h"
#include "bench/ab/summary.h"
#include "bench/sim/run.h"

namespace pacecar::ab {

// `records` are sorted by index. Reads the runs' detail files in `folder`.
nlohmann::json report_data(const Experiment& experiment, const Summary& summary,
                           const std::vector<RunRecord>& records, const ResultsFolder& folder);

// The details of a simulated run: flows, queues and rates over time, links. They become one JSON
// file per run; "detail" in the schema above.
nlohmann::json run_detail(const RunResult& run);
// All metrics that the run has; with several jobs also those of each job alone ("fct_p99_us@bulk").
std::map<std::string, double> run_metrics(const RunResult& run);

}  // namespace pacecar::ab
