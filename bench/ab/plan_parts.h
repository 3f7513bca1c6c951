// The parts that plans of simulations and of real programs have in common: arms, factors, the cells
// to run, thresholds. A plan is a TOML file (README.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/sim/spec_reader.h"
#include "bench/sim/spec_value.h"

namespace pacecar::ab {

// Texts as they are, everything else as TOML writes it: 64, true.
std::string plain_text(const SpecValue& value);
// The list of texts under `key`; empty when the key is missing.
std::vector<std::string> read_texts(SpecReader& reader, std::string_view key);

template <typename Named>
std::vector<std::string> names_of(const std::vector<Named>& all) {
  std::vector<std::string> names;
  for (const Named& each : all) names.push_back(each.name);
  return names;
}

// True for the cells that a table such as {arm = "nscc", matrix = ["inc32", "perm128"]} names; what
// it leaves out may be anything. `cells` are those to look at.
Result<std::vector<bool>> select_cells(const SpecValue& select, const std::string& name,
                                       const Experiment& experiment,
                                       const std::vector<Cell>& cells);

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

// Reads one [[threshold]] and appends one for each cell that it is about. Errors: kInvalidArgument.
Result<void> read_threshold(const SpecValue& table, Experiment& experiment);

}  // namespace pacecar::ab
