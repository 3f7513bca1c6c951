// A run's summary for people, as a few lines of text. Pure.
#pragma once

#include <string>
#include <vector>

#include "bench/sim/run.h"
#include "bench/sim/run_spec.h"

namespace pacecar {

std::string summary(const RunResult& run);
// What a run is made of, defaults included, in one line: rates, round trip, queues.
std::string fabric_text(const RunSpec& spec);
// A sentence: which flows are not done, the first few by name, and the cure. Empty when all are.
std::string undone_flows(const RunSpec& spec, const RunResult& run);
// Sentences: settings that spoil the run, and the run's undone flows and lost packets.
std::vector<std::string> warnings(const RunSpec& spec, const RunResult& run = {});

}  // namespace pacecar
