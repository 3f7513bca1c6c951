// The checks: pure functions from facts to findings. The id of a finding begins with the name of
// its check. A new check is its file, its declaration and its line in checks.cc.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "bench/preflight/facts.h"
#include "bench/preflight/finding.h"
#include "transport/base/result.h"

namespace pacecar::preflight {

struct Check {
  std::string_view name;
  std::string_view summary;
  void (*run)(const Facts& facts, Findings& findings);
};

std::span<const Check> checks();

// The checks in the comma-separated list `names`, in their usual order; all if it is empty. Errors:
// kInvalidArgument (a name without a check), with the names of all checks.
Result<std::vector<Check>> choose_checks(std::string_view names);

Findings examine(const Facts& facts, std::span<const Check> chosen);

// The GID of a RoCE port that Pacecar uses; null if the port has no RoCE v2 GID. Among equally good
// GIDs it has the lowest index.
const Gid* choose_gid(const RdmaPort& port);

inline Subject about(const RdmaPort& port) {
  return {
      port.name(),
      {{"NETDEV", port.netdev}, {"DEVICE", port.device}, {"PORT", std::to_string(port.number)}}};
}

void check_rdma(const Facts& facts, Findings& findings);
void check_gids(const Facts& facts, Findings& findings);
void check_mtu(const Facts& facts, Findings& findings);
void check_limits(const Facts& facts, Findings& findings);
void check_fabric(const Facts& facts, Findings& findings);
void check_pci(const Facts& facts, Findings& findings);
void check_gpu(const Facts& facts, Findings& findings);
void check_cpu(const Facts& facts, Findings& findings);
void check_software(const Facts& facts, Findings& findings);

}  // namespace pacecar::preflight
