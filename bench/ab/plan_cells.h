// The parts of a plan that name cells: "arm = ..., FACTOR = ..." selects, and thresholds.
#pragma once

#include <string>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/sim/spec_reader.h"
#include "bench/sim/spec_value.h"

namespace pacecar::ab {

// The entries of a list of tables such as [[arm]]; none when the key is missing.
// Errors: kInvalidArgument for anything else.
Result<std::vector<const SpecValue*>> tables_of(const SpecTable& plan, std::string_view key);

// Texts as they are, everything else as TOML writes it: 64, true.
std::string plain_text(const SpecValue& value);

// `what` are they: "arms". Errors: kInvalidArgument when one comes twice.
Result<void> check_names(const std::vector<std::string>& names, const std::string& what,
                         const SpecPlace& place);

// True for the cells that a table such as {arm = "nscc", matrix = ["inc32", "perm128"]} names; what
// it leaves out may be anything. `cells` are those to look at.
// Errors: kInvalidArgument; unknown arms, factors and values.
Result<std::vector<bool>> select_cells(const SpecValue& select, const std::string& name,
                                       const Experiment& experiment,
                                       const std::vector<Cell>& cells);

// All combinations of the experiment's arms and factor values, but for those that a [[skip]] names,
// and that no [[only]] does.
Result<void> choose_cells(const SpecTable& table, Experiment& experiment);

// Reads one [[threshold]] and appends a threshold for each cell that it is about.
Result<void> read_threshold(const SpecValue& table, Experiment& experiment);

}  // namespace pacecar::ab
