// Finds the strategies with the shortest steps. For each shape the best split of the layers; of all
// shapes the best few. Shapes and splits are left out where a lower bound shows that they are
// worse.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/plan/comm_times.h"
#include "bench/plan/split_bound.h"
#include "bench/plan/stage_costs.h"
#include "bench/plan/strategy.h"

namespace pacecar::plan {

struct SearchOptions {
  uint32_t best = 5;      // shapes that are wanted
  double tolerance = 0;   // what is at most so much better (0.001: 0.1%) may be left out
  uint32_t nodes = 5000;  // partial splits that are looked at per shape
};

struct SearchResult {
  std::vector<Strategy> best;    // shortest step first; empty: nothing fits
  double bound_s = 0;            // no strategy of the space takes less
  bool memory_short = false;     // some shape was left out for memory alone
  uint64_t shapes = 0;           // in the space
  uint64_t shapes_searched = 0;  // whose splits were looked at
  uint64_t splits = 0;           // whose step was simulated
};

// All shapes of the space: in each pipeline every stage has a kind, micro-batches divide the global
// batch, expert groups the data parallel ones. Accelerators may stay unused.
std::vector<Shape> shapes_of(const Problem& problem);

// The times of all stages, by their layers, and what their memory holds.
SplitProblem split_problem(const Problem& problem, const StageCosts& costs);

SearchResult search(const Problem& problem, CommTimes& comm, const SearchOptions& options = {});

}  // namespace pacecar::plan
