// Which rank of a communicator is late, and why (README.md, Ranks). Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/doctor/job.h"

namespace pacecar::doctor {

struct RankFinding {
  std::string_view rule;  // as README.md lists them
  const Process* process = nullptr;
  const Process* peer = nullptr;  // of a path: where it leads
  std::string why;                // one sentence
};

// Of all communicators with two ranks or more, worst first. Points into the job.
std::vector<RankFinding> examine_ranks(const Job& job);

}  // namespace pacecar::doctor
