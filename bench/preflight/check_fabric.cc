// PFC and DCQCN, which keep a RoCE network from dropping packets, and counters of lost packets. A
// software device has the counters only.
#include <fmt/format.h>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {
namespace {

std::string priorities(uint8_t mask) {
  std::vector<unsigned> set;
  for (unsigned priority = 0; priority < 8; ++priority) {
    if (((mask >> priority) & 1) != 0) set.push_back(priority);
  }
  return fmt::format("{}", fmt::join(set, ", "));
}

std::string list(const Counters& counters) {
  std::string text;
  for (const auto& [name, value] : counters) {
    if (value != 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

void check_pfc(const RdmaPort& port, const Netdev* netdev, Findings& findings) {
  const std::string_view name = netdev == nullptr ? "" : std::string_view(netdev->name);
  if (netdev == nullptr || !netdev->pfc) {
    findings.add(FindingId::kFabricPfcUnknown, port.name(),
                 "the driver does not report whether PFC is on", {{"NETDEV", name}});
  } else if (*netdev->pfc == 0) {
    findings.add(FindingId::kFabricPfcOff, port.name(),
                 fmt::format("interface {}: PFC is off for every priority; turn it on here and on "
                             "the switches, for the priority that RDMA uses",
                             name),
                 {{"NETDEV", name}});
  } else {
    findings.add(FindingId::kFabricPfc, port.name(),
                 fmt::format("PFC for priority {}", priorities(*netdev->pfc)));
  }
}

void check_ecn(const Facts& facts, const RdmaDevice& device, const RdmaPort& port,
               Findings& findings) {
  const Netdev* netdev = facts.netdev(port.netdev);
  if (netdev == nullptr || !netdev->ecn_notify || !netdev->ecn_react) {
    findings.add(
        FindingId::kFabricEcnUnknown, port.name(),
        "the driver does not report whether DCQCN is on: query the firmware's ROCE_CC settings",
        {{"PCI", device.pci_address}});
    return;
  }
  const auto both = static_cast<uint8_t>(*netdev->ecn_notify & *netdev->ecn_react);
  if (both == 0) {
    findings.add(FindingId::kFabricEcnOff, port.name(),
                 fmt::format("interface {}: no priority both notifies of ECN marks (roce_np) and "
                             "reacts to notifications (roce_rp)",
                             netdev->name),
                 {{"NETDEV", netdev->name}});
  } else {
    findings.add(FindingId::kFabricEcn, port.name(),
                 fmt::format("DCQCN for priority {}", priorities(both)));
  }
}

bool has_pfc(const RdmaDevice& device, const RdmaPort& port) {
  return port.ethernet && !device.is_software();
}

void check_losses(const Facts& facts, const RdmaDevice& device, const RdmaPort& port,
                  Findings& findings) {
  if (port.losses.empty()) return;
  const std::string lost = list(port.losses);
  if (lost.empty()) {
    findings.add(FindingId::kFabricNoLoss, port.name(), "no lost packet in the adapter's counters");
  } else if (!facts.watched) {
    findings.add(FindingId::kFabricLoss, port.name(),
                 fmt::format("since the driver was loaded: {}: the fabric drops or reorders RDMA "
                             "packets; see whether it still does",
                             lost));
  } else if (port.growth.empty()) {
    findings.add(FindingId::kFabricLossPast, port.name(),
                 fmt::format("nothing in {:g} s; earlier: {}", facts.watched->seconds(), lost));
  } else if (!has_pfc(device, port)) {
    findings.add(FindingId::kFabricLossWithoutPfc, port.name(),
                 fmt::format("in {:g} s: {}", facts.watched->seconds(), list(port.growth)),
                 {{"NETDEV", port.netdev}});
  } else {
    findings.add(FindingId::kFabricLossGrows, port.name(),
                 fmt::format("in {:g} s: {}: the fabric drops RoCE packets; PFC or ECN are not set "
                             "up along the path",
                             facts.watched->seconds(), list(port.growth)),
                 {{"NETDEV", port.netdev}});
  }
}

void check_traffic_class(const RdmaPort& port, Findings& findings) {
  if (!port.forced_traffic_class.empty()) {
    findings.add(FindingId::kFabricTrafficClass, port.name(),
                 fmt::format("the driver forces {}", port.forced_traffic_class));
  }
  if (port.default_tos.value_or(0) != 0) {
    findings.add(
        FindingId::kFabricTrafficClass, port.name(),
        fmt::format("the RDMA connection manager uses type of service {}", *port.default_tos));
  }
}

void check_port(const Facts& facts, const RdmaDevice& device, const RdmaPort& port,
                Findings& findings) {
  check_losses(facts, device, port, findings);
  if (!has_pfc(device, port)) return;
  const Netdev* netdev = facts.netdev(port.netdev);
  check_pfc(port, netdev, findings);
  check_ecn(facts, device, port, findings);
  check_traffic_class(port, findings);
  const std::string paused = netdev == nullptr ? "" : list(netdev->pauses);
  if (!paused.empty()) {
    findings.add(FindingId::kFabricPaused, port.name(), "pauses received: " + paused);
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
