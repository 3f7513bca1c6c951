// The paths between hosts, for `preflight --hosts`: tries each pair of hosts over the transport
// itself, on their first NICs, on their second NICs and so on, as a job would. So each failure is
// reported in the words that the job's log would have.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/console.h"
#include "bench/hosts/agent_pool.h"
#include "bench/preflight/finding.h"

namespace pacecar::hosts {

struct PathFinding {
  preflight::Severity severity = preflight::Severity::kOk;
  std::string path;  // "gpu01 and gpu02 over soft:udp:eth0"
  std::string text;
};

struct PathReport {
  size_t paths = 0;
  size_t good = 0;  // with no more than warnings
  std::vector<PathFinding> findings;

  preflight::Severity worst() const;
  std::string text() const;  // a line for each finding, and the sum
  nlohmann::json document() const;
};

// Takes about a second for each eight hosts, and a few seconds more where a path does not answer.
PathReport check_paths(AgentPool& agents, const cli::Console& console);

}  // namespace pacecar::hosts
