// What makes latency vary: CPU frequency, sleep states, NUMA distance. And huge pages.
#include <fmt/format.h>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {
namespace {

constexpr uint64_t kDeepIdleUs = 50;  // more than a round trip in a data centre

void check_governor(const Cpu& cpu, Findings& findings) {
  std::vector<std::string> slow;
  for (const auto& [governor, count] : cpu.governors) {
    if (governor != "performance") slow.push_back(fmt::format("{} on {} CPUs", governor, count));
  }
  if (!slow.empty()) {
    findings.add("cpu.governor_slow", "governor", "{}", fmt::join(slow, ", "));
  } else {
    findings.add("cpu.governor", "governor", "{}",
                 cpu.governors.empty() ? "the kernel does not scale frequencies" : "performance");
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
      findings.add("cpu.near", device.name, "NUMA node {}, where this process may run", number);
    } else {
      findings.add("cpu.far", {device.name, {{"NODE", number}}},
                   "on NUMA node {}, and this process may run on none of its CPUs", number);
    }
  }
}

}  // namespace

void check_cpu(const Facts& facts, Findings& findings) {
  const Cpu& cpu = facts.cpu;
  check_governor(cpu, findings);
  if (cpu.deepest_idle_us.value_or(0) > kDeepIdleUs) {
    findings.add("cpu.idle_deep", "sleep states", "waking from the deepest takes {} us",
                 *cpu.deepest_idle_us);
  }
  check_cpu_near(facts, findings);
  if (!cpu.huge_pages) return;
  if (*cpu.huge_pages == 0) {
    findings.add("cpu.no_huge_pages", "huge pages", "none reserved; only DPDK needs them");
  } else {
    findings.add("cpu.huge_pages", "huge pages", "{}", *cpu.huge_pages);
  }
}

}  // namespace pacecar::preflight
