// The flags of `pacecar ab`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/ab/plan.h"
#include "bench/cli/command_line.h"
#include "transport/base/result.h"

namespace pacecar::ab {

struct AbOptions {
  bool of_programs = false;  // a command behind "--", no plan
  std::string help;          // not empty: it was asked for, and nothing else counts

  // Of a plan:
  std::string plan;  // its path
  std::vector<std::string> filters;
  std::optional<uint64_t> seed;
  std::optional<size_t> jobs;
  bool list = false;
  bool dry_run = false;

  // Of programs:
  Plan programs;
  std::vector<std::string> command;  // behind "--"
  std::optional<std::string> a;
  std::optional<std::string> b;
  std::vector<std::string> arms;
  uint64_t reps = 10;
  std::optional<double> timeout;

  std::string out;  // empty: from the plan's name
  bool resume = false;
  bool force = false;
  cli::ConsoleFlags console;
};

// argv[0] is "ab". Errors: kInvalidArgument, one sentence.
Result<AbOptions> parse_ab_options(int argc, const char* const* argv);

}  // namespace pacecar::ab
