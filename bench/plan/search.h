// Finds the strategies with the shortest steps: the best split of the layers for each shape, and
// the best few shapes. Leaves out what a lower bound shows to be worse. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bench/plan/model.h"
#include "bench/plan/split.h"
#include "bench/plan/stage_costs.h"

namespace pacecar::plan {

struct SearchOptions {
  uint32_t best = 5;      // number of shapes to find
  double tolerance = 0;   // strategies that are better by at most this (0.001: 0.1%) may be missed
  uint32_t nodes = 5000;  // partial splits searched per shape
};

struct SearchResult {
  std::vector<Strategy> best;    // shortest step first; empty: nothing fits
  double bound_s = 0;            // no strategy of the space takes less
  bool memory_short = false;     // some shape did not fit the memory
  uint64_t shapes = 0;           // in the space
  uint64_t shapes_searched = 0;  // whose splits were searched
  uint64_t splits = 0;           // whose step was simulated
};

// All shapes of the space. Micro-batches divide the global batch, expert groups the data parallel
// groups. Some accelerators may stay unused.
std::vector<Shape> shapes_of(const Problem& problem);

// The times of all stages by their layers, as far as these fit the memory.
SplitProblem split_problem(const Problem& problem, const StageCosts& costs);

// Calls `looked` before each shape with how many it has looked at, of how many.
using Looked = std::function<void(size_t done, size_t all)>;
SearchResult search(
    const Problem& problem, CommTimes& comm, const SearchOptions& options = {},
    const Looked& looked = [](size_t, size_t) {});

}  // namespace pacecar::plan
