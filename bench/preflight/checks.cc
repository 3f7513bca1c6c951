#include "bench/preflight/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ranges>

#include "transport/base/invalid.h"

namespace pacecar::preflight {
namespace {

constexpr std::array kChecks = {
    Check{"rdma", "RDMA devices, their ports, and whether programs can open them", check_rdma},
    Check{"gid", "addresses that RoCE ports have, and the one that is used", check_gids},
    Check{"mtu", "packet sizes, here and with --peer to another host", check_mtu},
    Check{"limits", "locked memory, open files, socket buffers, CPU quota", check_limits},
    Check{"fabric", "PFC, ECN and the adapter's counters of network trouble", check_fabric},
    Check{"pci", "PCIe links, IOMMU, access control between NIC and GPU", check_pci},
    Check{"gpu", "NVIDIA GPUs and GPUDirect", check_gpu},
    Check{"cpu", "frequency, sleep states, NUMA nodes, huge pages", check_cpu},
    Check{"software", "versions, kernel modules, NCCL, Pacecar's parameters", check_software},
};

}  // namespace

std::span<const Check> checks() { return kChecks; }

Result<std::vector<Check>> choose_checks(std::string_view names) {
  const auto wanted = split(names, ',');
  for (const std::string& name : wanted) {
    if (std::ranges::find(kChecks, name, &Check::name) != kChecks.end()) continue;
    return invalid("there is no check '{}': choose some of {}", name,
                   fmt::join(kChecks | std::views::transform(&Check::name), ", "));
  }
  std::vector<Check> chosen;
  for (const Check& check : kChecks) {
    if (wanted.empty() || std::ranges::find(wanted, check.name) != wanted.end()) {
      chosen.push_back(check);
    }
  }
  return chosen;
}

Findings examine(const Facts& facts, std::span<const Check> chosen) {
  Findings findings;
  for (const Check& check : chosen) check.run(facts, findings);
  return findings;
}

}  // namespace pacecar::preflight
