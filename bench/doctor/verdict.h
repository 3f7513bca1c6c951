// The findings of a job, worst first, and the verdict: the slowest process, NIC and path. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/doctor/rules.h"

namespace pacecar::doctor {

struct Finding {
  Path path;
  const Rule* rule = nullptr;

  std::string why() const { return rule->why(path); }
};

// A finding for every sending flow, and for receiving flows with trouble. Points into the job.
std::vector<Finding> examine(const Job& job);

// The process for which most others wait, directly or through each other.
struct WaitedFor {
  std::string name;
  size_t waiters = 0;
  bool circle = false;               // there is none: `waiters` processes wait for each other
  const Finding* longest = nullptr;  // of a flow that waits for it
};
std::optional<WaitedFor> waited_for(const std::vector<Finding>& findings);

struct Verdict {
  bool trouble = false;
  std::string rule;     // the one that holds; empty: none
  std::string process;  // the slowest; empty: none is slow
  std::string nic;
  std::string path;
  std::string why;  // one sentence
};
Verdict conclude(const Job& job, const std::vector<Finding>& findings);

}  // namespace pacecar::doctor
