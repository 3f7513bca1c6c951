// What the ranks of a communicator say of each other, by their profiles: who is late, and why.
//
// No clock is compared with another's: all ranks end a collective together, so whoever was in it
// for the shortest time came last. Pure.
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
