// The findings about a plugin, and their output.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/check/trial.h"

namespace pacecar::check {

struct Finding {
  int version = 0;  // of the table
  std::string rule;
  std::string sentence;
  Outcome outcome;
};

struct Figures {
  int version = 0;
  std::string stream;  // JSON of bench/nccl/pair_bench; empty: not measured
  std::string latency;
  std::string trouble;  // why one is missing
};

// One line for one finding; `width` is that of the longest rule's name.
std::string line_of(const Finding& finding, size_t width);
std::string lines_of(const Figures& figures);
nlohmann::json to_json(const std::string& plugin, const std::vector<Finding>& findings,
                       const std::vector<Figures>& figures);

}  // namespace pacecar::check
