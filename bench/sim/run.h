// Runs one experiment: the production stack at every host of a simulated fabric, driven by a
// workload on virtual time.
//
//   set-up: connections made, receives posted and advertised; then time 0: flows start, faults
//   happen, queues and rates are sampled; it ends with the last flow, or at the time limit.
#pragma once

#include <functional>

#include "bench/sim/run_result.h"
#include "bench/sim/run_spec.h"
#include "transport/base/result.h"

namespace pacecar {

struct RunProgress {
  double done = 0;        // share of the bytes that have arrived
  Duration virtual_time;  // since time 0
  uint64_t events = 0;
};
// Called now and then; false ends the run there.
using ProgressCallback = std::function<bool(const RunProgress&)>;

// Errors: kInvalidArgument for what cannot run (unknown algorithm, hosts that are not there, a
// fabric that makes no sense), kSystem for files that cannot be written, kInternal for a run that
// broke an invariant (packets lost from the books).
Result<RunResult> run_experiment(const RunSpec& spec, const ProgressCallback& progress = {});

}  // namespace pacecar
