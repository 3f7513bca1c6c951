// The checks: each a pure function from facts to findings. An id of a finding begins with the name
// of its check. A new check is its file, its declaration and its line in checks.cc.
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

// The checks that `names`, a comma list, has, in their usual order; all of them when it is empty.
// Errors: kInvalidArgument for a name that is no check, with those that there are.
Result<std::vector<Check>> choose_checks(std::string_view names);

Findings examine(const Facts& facts, std::span<const Check> chosen);

// The GID that Pacecar uses of a RoCE port; null when there is no RoCE v2 GID. Of equals, the one
// with the lowest index.
const Gid* choose_gid(const RdmaPort& port);

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
