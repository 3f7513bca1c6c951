#include "bench/preflight/read_facts.h"

#include "bench/preflight/kernel_probes.h"

namespace pacecar::preflight {
namespace {

// The port of the same device and number, or null.
const RdmaPort* same_port(const Facts& facts, const RdmaPort& port) {
  for (const RdmaDevice& device : facts.rdma) {
    for (const RdmaPort& candidate : device.ports) {
      if (candidate.device == port.device && candidate.number == port.number) return &candidate;
    }
  }
  return nullptr;
}

}  // namespace

Facts read_facts(const HostTree& tree, bool live) {
  Facts facts;
  facts.rdma = read_rdma(tree);
  facts.netdevs = read_netdevs(tree, live);
  if (live) facts.interfaces = count_interfaces();
  read_pci(tree, facts);
  facts.process = read_process(tree);
  facts.cpu = read_cpu(tree);
  facts.software = read_software(tree);
  return facts;
}

void set_growth(const Facts& before, Duration watched, Facts& after) {
  after.watched = watched;
  for (RdmaDevice& device : after.rdma) {
    for (RdmaPort& port : device.ports) {
      const RdmaPort* earlier = same_port(before, port);
      if (earlier == nullptr) continue;
      for (const auto& [name, value] : port.losses) {
        const auto old = earlier->losses.find(name);
        const uint64_t base = old == earlier->losses.end() ? 0 : old->second;
        if (value > base) port.growth[name] = value - base;
      }
    }
  }
}

}  // namespace pacecar::preflight
