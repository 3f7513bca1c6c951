// What makes latency vary: CPU frequency, sleep states, NUMA distance. And huge pages.
#include <fmt/format.h>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {
namespace {

constexpr uint64_t kDeepIdleUs = 50;  // more than a round trip in a data centre

void check_governor(const Cpu& cpu, Findings& findings) {
  std::string slow;
  for (const auto& [governor, count] : cpu.governors) {
    if (governor == "performance") continue;
    slow += fmt::format("{}{} on {} CPUs", slow.empty() ? "" : ", ", governor, count);
  }
  if (slow.empty()) {
    findings.add(FindingId::kCpuGovernor, "governor",
                 cpu.governors.empty() ? "the kernel does not scale frequencies" : "performance");
  } else {
    findings.add(FindingId::kCpuGovernorSlow, "governor", slow);
  }
}

void check_cpu_near(const Facts& facts, Findings& findings) {
  for (const RdmaDevice& device : facts.rdma) {
    const PciDevice* pci = facts.pci_device(device.pci_address);
    if (pci == nullptr || !pci->numa_node || facts.process.cpus.empty()) continue;
    const auto node = facts.cpu.numa_nodes.find(*pci->numa_node);
    if (node == facts.cpu.numa_nodes.end()) continue;
    const std::string number = std::to_string(node->first);
    if (overlap(node->second, facts.process.cpus)) {
      findings.add(FindingId::kCpuNear, device.name,
                   fmt::format("NUMA node {}, where this process may run", number));
    } else {
      findings.add(
          FindingId::kCpuFar, device.name,
          fmt::format("on NUMA node {}, and this process may run on none of its CPUs", number),
          {{"NODE", number}});
    }
  }
}

}  // namespace

void check_cpu(const Facts& facts, Findings& findings) {
  const Cpu& cpu = facts.cpu;
  check_governor(cpu, findings);
  if (cpu.deepest_idle_us.value_or(0) > kDeepIdleUs) {
    findings.add(FindingId::kCpuIdleDeep, "sleep states",
                 fmt::format("waking from the deepest takes {} us", *cpu.deepest_idle_us));
  }
  check_cpu_near(facts, findings);
  if (!cpu.huge_pages) return;
  if (*cpu.huge_pages == 0) {
    findings.add(FindingId::kCpuNoHugePages, "huge pages", "none reserved; only DPDK needs them");
  } else {
    findings.add(FindingId::kCpuHugePages, "huge pages", fmt::format("{}", *cpu.huge_pages));
  }
}

}  // namespace pacecar::preflight
