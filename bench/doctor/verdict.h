// The findings of a job, worst first, and the verdict: the slowest process, NIC and path.
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
  // Payload per second between two looks; else what the flow may send.
  double speed_bps() const;
};

// One for every sending flow, and for receiving flows with a problem. Points into the job.
std::vector<Finding> examine(const Job& job);

// Whom the others wait for, directly or through each other.
struct WaitedFor {
  std::string name;
  size_t waiters = 0;
  bool circle = false;               // only for each other: `waiters` processes
  const Finding* longest = nullptr;  // that points there
};
std::optional<WaitedFor> waited_for(const std::vector<Finding>& findings);

struct Verdict {
  bool trouble = false;
  std::string rule;     // that decided; empty: none
  std::string process;  // the slowest; empty: none is slow
  std::string nic;
  std::string path;
  std::string why;  // one sentence
};
Verdict conclude(const Job& job, const std::vector<Finding>& findings);

}  // namespace pacecar::doctor
