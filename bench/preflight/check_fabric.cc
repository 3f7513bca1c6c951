// PFC and DCQCN, which keep a RoCE network from dropping packets, and counters of lost packets. A
// software device has the counters only.
#include <fmt/format.h>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {
namespace {

std::string priorities(uint32_t mask) {
  std::vector<unsigned> set;
  for (unsigned priority = 0; priority < 8; ++priority) {
    if (((mask >> priority) & 1) != 0) set.push_back(priority);
  }
  return fmt::format("{}", fmt::join(set, ", "));
}

std::string list(const Counters& counters) {
  std::vector<std::string> counted;
  for (const auto& [name, value] : counters) {
    if (value != 0) counted.push_back(fmt::format("{} {}", name, value));
  }
  return fmt::format("{}", fmt::join(counted, ", "));
}

void check_pfc(const RdmaPort& port, const Netdev* netdev, Findings& findings) {
  if (netdev == nullptr || !netdev->pfc) {
    findings.add("fabric.pfc_unknown", about(port), "the driver does not report whether PFC is on");
  } else if (*netdev->pfc == 0) {
    findings.add("fabric.pfc_off", about(port),
                 "interface {}: PFC is off for every priority; turn it on here and on the "
                 "switches, for the priority that RDMA uses",
                 netdev->name);
  } else {
    findings.add("fabric.pfc", about(port), "PFC for priority {}", priorities(*netdev->pfc));
  }
}

void check_ecn(const RdmaDevice& device, const RdmaPort& port, const Netdev* netdev,
               Findings& findings) {
  if (netdev == nullptr || !netdev->ecn_notify || !netdev->ecn_react) {
    findings.add("fabric.ecn_unknown", {port.name(), {{"PCI", device.pci_address}}},
                 "the driver does not report whether DCQCN is on: query the firmware's ROCE_CC "
                 "settings");
  } else if (const uint32_t both = *netdev->ecn_notify & *netdev->ecn_react; both == 0) {
    findings.add("fabric.ecn_off", about(port),
                 "interface {}: no priority both notifies of ECN marks (roce_np) and reacts to "
                 "notifications (roce_rp)",
                 netdev->name);
  } else {
    findings.add("fabric.ecn", about(port), "DCQCN for priority {}", priorities(both));
  }
}

void check_losses(const RdmaPort& port, std::optional<Duration> watched, bool has_pfc,
                  Findings& findings) {
  if (port.losses.empty()) return;
  const std::string lost = list(port.losses);
  const double seconds = watched.value_or(Duration()).seconds();
  if (lost.empty()) {
    findings.add("fabric.no_loss", about(port), "no lost packet in the adapter's counters");
  } else if (!watched) {
    findings.add("fabric.loss", about(port),
                 "since the driver was loaded: {}: the fabric drops or reorders RDMA packets; see "
                 "whether it still does",
                 lost);
  } else if (port.growth.empty()) {
    findings.add("fabric.loss_past", about(port), "nothing in {:g} s; earlier: {}", seconds, lost);
  } else if (!has_pfc) {
    findings.add("fabric.loss_without_pfc", about(port), "in {:g} s: {}", seconds,
                 list(port.growth));
  } else {
    findings.add("fabric.loss_grows", about(port),
                 "in {:g} s: {}: the fabric drops RoCE packets; PFC or ECN are not set up along "
                 "the path",
                 seconds, list(port.growth));
  }
}

void check_port(const Facts& facts, const RdmaDevice& device, const RdmaPort& port,
                Findings& findings) {
  const bool has_pfc = port.ethernet && !device.is_software();
  check_losses(port, facts.watched, has_pfc, findings);
  if (!has_pfc) return;
  const Netdev* netdev = facts.netdev(port.netdev);
  check_pfc(port, netdev, findings);
  check_ecn(device, port, netdev, findings);
  if (!port.forced_traffic_class.empty()) {
    findings.add("fabric.traffic_class", about(port), "the driver forces {}",
                 port.forced_traffic_class);
  }
  if (port.default_tos.value_or(0) != 0) {
    findings.add("fabric.traffic_class", about(port),
                 "the RDMA connection manager uses type of service {}", *port.default_tos);
  }
  const std::string paused = netdev == nullptr ? "" : list(netdev->pauses);
  if (!paused.empty()) {
    findings.add("fabric.paused", about(port), "pauses received: {}", paused);
  }
}

}  // namespace

void check_fabric(const Facts& facts, Findings& findings) {
  for (const RdmaDevice& device : facts.rdma) {
    for (const RdmaPort& port : device.ports) {
      if (port.active()) check_port(facts, device, port, findings);
    }
  }
}

}  // namespace pacecar::preflight
