// Makes facts of a tree of files and of the running kernel's answers. Never fails: unreadable facts
// are unknown. Everything is sorted by name.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "bench/preflight/facts.h"
#include "bench/preflight/host_tree.h"

namespace pacecar::preflight {

// Facts that no file has. An empty function: unknown.
struct KernelProbes {
  std::function<std::optional<PriorityFlowControl>(const std::string& netdev)> pfc;
  std::function<Counters(const std::string& netdev)> statistics;
  std::function<size_t()> interfaces;  // how many are up with an IP address
};

Facts read_facts(const HostTree& tree, const KernelProbes& probes);

// Puts what the loss counters have gained since `before` into `after`.
void note_growth(const Facts& before, Duration watched, Facts& after);

// The parts, each from its own files.
std::vector<RdmaDevice> read_rdma(const HostTree& tree);
std::vector<Netdev> read_netdevs(const HostTree& tree, const KernelProbes& probes);
void read_pci(const HostTree& tree, Facts& facts);
Process read_process(const HostTree& tree);
Cpu read_cpu(const HostTree& tree);
Software read_software(const HostTree& tree);

}  // namespace pacecar::preflight
