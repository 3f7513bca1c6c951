// An experiment of simulations or of real programs: what summaries and reports compare. Plain data.
// A cell is one arm under one value of each factor. Its runs differ only in their seed, which for
// real programs is the number of their block. Runs are numbered cell by cell.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace pacecar::ab {

struct Arm {
  std::string name;
  std::string settings;  // in what it differs, for people
};

struct Factor {
  std::string name;
  std::vector<std::string> values;
};

struct Cell {
  size_t arm = 0;
  std::vector<size_t> values;  // one per factor, indices into Factor::values

  bool operator==(const Cell&) const = default;
};

// A bound on one metric of one cell: on its mean or median over the runs, or on its ratio to or its
// difference from another cell's: of the means, or the median over all pairs.
struct Threshold {
  enum class Of { kValue, kRatio, kDifference };  // the latter two: to `versus`

  std::string metric;
  size_t cell = 0;
  size_t versus = 0;  // a cell
  Of of = Of::kValue;
  bool median = false;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double reference = 0;  // the deviation is relative to it
  std::string expected;  // for people: "668 within 5%"
};

struct Experiment {
  enum class Kind { kSimulation, kPrograms };

  Kind kind = Kind::kSimulation;
  std::string name;
  std::string description;
  std::vector<Arm> arms;
  std::vector<Factor> factors;
  std::vector<uint64_t> seeds;
  size_t baseline = 0;             // the arm that others are compared to
  std::vector<std::string> shown;  // metrics
  std::vector<Cell> cells;
  std::vector<Threshold> thresholds;

  size_t runs() const { return cells.size() * seeds.size(); }
  const Cell& cell_of(size_t run) const { return cells[run / seeds.size()]; }
  uint64_t seed_of(size_t run) const { return seeds[run % seeds.size()]; }
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Arm, name, settings)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Factor, name, values)

// The value of each factor, by its name.
std::map<std::string, std::string> factors_of(const Experiment& experiment, const Cell& cell);
// The name of its arm, then the value of each factor.
std::vector<std::string> names_of(const Experiment& experiment, const Cell& cell);
// "nscc, matrix = inc32, queue = large": one line for people.
std::string cell_text(const Experiment& experiment, const Cell& cell);
// The cell of `arm` with the factor values of `cell`; none if the plan leaves it out.
std::optional<size_t> partner(const Experiment& experiment, const Cell& cell, size_t arm);

// The runs that --filter selects: those for which all filters hold, in order. A filter is
// "NAME=PATTERN" where NAME is arm, seed or a factor; * and ? in the pattern stand for any letters.
// Errors: kInvalidArgument for unknown names, and when nothing is left.
Result<std::vector<size_t>> filter_runs(const Experiment& experiment,
                                        const std::vector<std::string>& filters);

}  // namespace pacecar::ab
