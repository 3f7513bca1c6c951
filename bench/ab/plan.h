// A plan: a TOML file that defines a comparison. Its tables of a run (as `pacecar sim` takes them)
// are common to all runs; arms and factor values override keys of them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/results_folder.h"
#include "bench/sim/run_spec.h"
#include "bench/sim/spec_reader.h"
#include "bench/sim/spec_value.h"

namespace pacecar::ab {

struct Plan {
  Experiment experiment;
  std::vector<SpecTable> specs;  // one per cell
  std::string base_dir;          // where relative names of files in the plan start
  std::string text;              // of the file
};

// `seed` replaces the plan's seeds. Every cell is checked, so that no run fails later because of
// the plan. Errors: kNotFound, kSystem, kInvalidArgument; one sentence with file, line, cause and
// cure.
Result<Plan> read_plan(const std::string& path, std::optional<uint64_t> seed);
// For a text that is no file; messages call it `name`. Cells are not checked.
Result<Plan> parse_plan(std::string_view text, const std::string& name);

Result<RunSpec> run_spec(const Plan& plan, size_t run);

// --- its runs ---

// Called when a run has ended, and at least every 200 ms: `done` of `all` runs have ended.
using RunProgressSink = std::function<void(size_t done, size_t all)>;

// Runs those of `runs` (sorted) that `finished` does not hold with the same hash, at most `jobs` at
// once, and appends the record of each to the folder as it ends; drops records of `finished` that
// are not the plan's. A run that crashes has a record with its error. Returns all records, sorted.
// Errors: kSystem; kUnavailable at SIGINT or SIGTERM (finished runs are kept).
Result<std::vector<RunRecord>> run_plan(const Plan& plan, const std::vector<size_t>& runs,
                                        const std::vector<RunRecord>& finished,
                                        const ResultsFolder& folder, size_t jobs,
                                        const std::string& command_line,
                                        const RunProgressSink& progress);

// --- what plans of simulations and of real programs have in common ---

// Texts as they are, everything else as TOML writes it: 64, true.
std::string plain_text(const SpecValue& value);
// The list of texts under `key`; empty when the key is missing.
std::vector<std::string> read_texts(SpecReader& reader, std::string_view key);

// An arm or a factor value: its name, and the keys that it sets.
struct Layer {
  std::string name;
  SpecTable keys;
};

struct Layers {
  std::vector<Layer> arms;
  std::vector<std::vector<Layer>> factors;

  // What a cell sets: the factor values' keys, then those of its arm, which count most.
  std::vector<const SpecTable*> of(const Cell& cell) const;
};

// Reads into `experiment`, of which kind and seeds are known: baseline, arms, factors, cells and
// thresholds. `top` reads the top level of `file`; the caller has read all its other keys.
// Errors: kInvalidArgument; one sentence with file, line, cause and cure.
Result<Layers> read_parts(const SpecValue& file, SpecReader& top, Experiment& experiment);

}  // namespace pacecar::ab
