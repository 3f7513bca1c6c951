// The output of collective_bench: nccl-tests' columns, and with another plugin the ratio of the
// two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/nccl/collective.h"
#include "bench/nccl/spread.h"

namespace pacecar::nccl {

// The result of one size in one round, over all ranks.
struct Line {
  size_t bytes = 0;
  double seconds = 0;      // per operation, the slowest rank's
  double cpu_seconds = 0;  // per operation, all ranks together
  uint64_t wrong = 0;

  double algorithm_bps() const { return static_cast<double>(bytes) * 8 / seconds; }
};

// One size of the rounds' medians.
struct Row {
  Line line;
  double other_seconds = 0;  // of the plugin that it is compared with
  Spread speedup;            // the other's time / ours within a round
};

// All rounds of one size, at least one; as many of each.
Row summarise(const std::vector<Line>& ours, const std::vector<Line>& other);

struct CollectiveReport {
  CollectiveKind kind;
  int ranks = 0;
  std::string device;
  std::string other_device;  // empty without another plugin
  std::vector<Row> rows;

  // As nccl-tests defines it.
  double bus_bps(const Line& line) const {
    return line.algorithm_bps() * kind.turns * (ranks - 1) / ranks;
  }
  bool compares() const { return !other_device.empty(); }
  void print_header() const;
  void print_last_row() const;
  // Throws std::runtime_error when the file cannot be written.
  void write_json(const std::string& path) const;
};

}  // namespace pacecar::nccl
