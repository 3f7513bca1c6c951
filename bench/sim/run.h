// Runs one experiment: the production stack at every host of a simulated fabric, driven by a
// workload on virtual time.
// README.md describes its two phases. Thread rule: one thread per run.
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
// Called every 65,536 events; false ends the run.
using ProgressCallback = std::function<bool(const RunProgress&)>;

// Errors: kInvalidArgument for an impossible spec (an unknown algorithm, a host that the topology
// does not have, an impossible fabric), kSystem for files that cannot be written, kInternal for
// packets that are neither delivered, dropped nor in flight.
Result<RunResult> run_experiment(const RunSpec& spec, const ProgressCallback& progress = {});

}  // namespace pacecar
