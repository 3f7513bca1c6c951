// The checks of RDMA devices and their ports, and of interfaces.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {

// --- rdma: devices, ports and device nodes, libibverbs and its providers ---

namespace {

constexpr uint64_t kVendorMellanox = 0x15b3;

// Kernel drivers and the names of their providers in libibverbs.
using DriverProvider = std::pair<std::string_view, std::string_view>;
constexpr std::array kProviders = {
    DriverProvider{"mlx5_core", "mlx5"},  DriverProvider{"mlx4_core", "mlx4"},
    DriverProvider{"bnxt_en", "bnxt_re"}, DriverProvider{"ice", "irdma"},
    DriverProvider{"efa", "efa"},         DriverProvider{"hns3", "hns"},
};

std::string describe(const RdmaDevice& device, const RdmaPort& port) {
  std::string text = fmt::format("{}, {}", port.ethernet ? "RoCE" : "InfiniBand", port.state);
  if (!port.rate.empty()) text += ", " + port.rate;
  if (!port.netdev.empty()) text += ", interface " + port.netdev;
  if (!device.firmware.empty()) text += ", firmware " + device.firmware;
  if (!device.node_guid.empty()) text += ", GUID " + device.node_guid;
  return text;
}

void check_rdma_port(const RdmaDevice& device, const RdmaPort& port, Findings& findings) {
  if (port.active()) {
    findings.add("rdma.port", about(port), "{}", describe(device, port));
    return;
  }
  const std::string state =
      fmt::format("port state {}, link {}", port.state.empty() ? "not known" : port.state,
                  port.phys_state.empty() ? "not known" : port.phys_state);
  if (port.ethernet) {
    findings.add("rdma.link_down", about(port),
                 "{}: bring its interface up; if it is up already, look at cable and switch port",
                 state);
  } else if (port.phys_state == "LinkUp") {
    findings.add("rdma.no_subnet_manager", about(port),
                 "{}: start a subnet manager, on the switch or on one host of the fabric", state);
  } else {
    findings.add("rdma.port_down", about(port), "{}: look at cable and switch port", state);
  }
}

void check_node(const Facts& facts, const RdmaDevice& device, Findings& findings) {
  if (device.node.empty()) {
    findings.add("rdma.uverbs_missing", device.name,
                 "no /dev/infiniband/uverbs* belongs to it: the module ib_uverbs is not loaded");
    return;
  }
  if (device.open_error == 0) return;
  const std::string path = "/" + device.node;
  if (device.open_error == ENOENT && facts.process.in_container) {
    findings.add("rdma.not_in_container", device.name,
                 "this container has no {}: start it with the RDMA devices", path);
  } else if (device.open_error == ENOENT) {
    findings.add("rdma.uverbs_missing", device.name,
                 "{} does not exist, though the kernel has the device", path);
  } else {
    findings.add("rdma.denied", {device.name, {{"NODE", path}}}, "{} cannot be opened: {}", path,
                 std::generic_category().message(device.open_error));
  }
}

std::string_view provider_of(const Facts& facts, const RdmaDevice& device) {
  if (device.is_software()) return facts.software.has_module("rdma_rxe") ? "rxe" : "";
  const auto found = std::ranges::find(kProviders, device.driver, &DriverProvider::first);
  return found == kProviders.end() ? "" : found->second;
}

void check_library(const Facts& facts, Findings& findings) {
  const Software& software = facts.software;
  if (software.libibverbs.empty()) {
    findings.add("rdma.libibverbs_missing", "libibverbs", "libibverbs.so.1 is not installed");
    return;
  }
  bool complete = true;
  for (const RdmaDevice& device : facts.rdma) {
    const std::string_view provider = provider_of(facts, device);
    if (provider.empty() ||
        std::ranges::find(software.providers, provider) != software.providers.end()) {
      continue;
    }
    complete = false;
    findings.add("rdma.provider_missing", device.name,
                 "libibverbs is installed without its provider '{}'", provider);
  }
  if (complete) findings.add("rdma.libibverbs", "libibverbs", "{}", software.libibverbs);
}

void check_absent(const Facts& facts, Findings& findings) {
  for (const PciDevice& device : facts.pci) {
    if (device.kind == PciKind::kNic && device.vendor == kVendorMellanox) {
      findings.add("rdma.driver_missing", device.address,
                   "an NVIDIA adapter without an RDMA device: its RDMA driver is not loaded");
      return;
    }
  }
  if (facts.interfaces == size_t{0}) {
    const std::string netdev = facts.netdevs.empty() ? "lo" : facts.netdevs.front().name;
    findings.add("rdma.no_nic", {"NICs", {{"NETDEV", netdev}}},
                 "no RDMA device, and no interface is up with an IP address: nothing can run here");
    return;
  }
  findings.add("rdma.none", "RDMA devices",
               "none: Pacecar runs over UDP sockets (PACECAR_NICS=soft:udp:NETDEV)");
}

}  // namespace

void check_rdma(const Facts& facts, Findings& findings) {
  if (facts.rdma.empty()) {
    check_absent(facts, findings);
    return;
  }
  bool any_active = false;
  for (const RdmaDevice& device : facts.rdma) {
    check_node(facts, device, findings);
    for (const RdmaPort& port : device.ports) {
      check_rdma_port(device, port, findings);
      any_active |= port.active();
    }
  }
  if (!any_active) {
    findings.add("rdma.no_active_port", "RDMA devices",
                 "no port of any RDMA device is active: nothing can be sent over RDMA");
  }
  check_library(facts, findings);
}

// --- gid: which GID a RoCE port is used with: RoCE v2; IPv4 first, then global IPv6, link-local
// ---

namespace {

enum class Reach : uint8_t { kIpv4, kGlobal, kLinkLocal };

Reach reach_of(const Gid& gid) {
  const auto& a = gid.address;
  const bool mapped = std::all_of(a.begin(), a.begin() + 10, [](uint8_t b) { return b == 0; }) &&
                      a[10] == 0xff && a[11] == 0xff;
  if (mapped) return a[12] == 169 && a[13] == 254 ? Reach::kLinkLocal : Reach::kIpv4;
  return a[0] == 0xfe && (a[1] & 0xc0) == 0x80 ? Reach::kLinkLocal : Reach::kGlobal;
}

std::string describe(const Gid& gid) {
  const auto& a = gid.address;
  const bool mapped = reach_of(gid) == Reach::kIpv4;
  return fmt::format("GID index {}, RoCE v2, {}", gid.index,
                     mapped ? fmt::format("{}.{}.{}.{}", a[12], a[13], a[14], a[15]) : gid.text);
}

// `best` is what would be used without the setting.
void check_index(const RdmaPort& port, const std::string& setting, const Gid& best,
                 Findings& findings) {
  const Subject subject{port.name(), {{"NUMBER", std::to_string(best.index)}}};
  const auto index = parse_number(setting);
  const auto named = std::ranges::find(port.gids, index, &Gid::index);
  if (named == port.gids.end() || !named->roce_v2) {
    findings.add("gid.index_unusable", subject, "PACECAR_GID_INDEX={} is {}; without it: {}",
                 setting,
                 !index                     ? "no number"
                 : named == port.gids.end() ? "an empty GID here"
                                            : "no RoCE v2 GID here",
                 describe(best));
  } else if (reach_of(*named) == Reach::kLinkLocal && reach_of(best) != Reach::kLinkLocal) {
    findings.add("gid.index_link_local", subject, "{}, link-local; without PACECAR_GID_INDEX: {}",
                 describe(*named), describe(best));
  } else {
    findings.add("gid.chosen", subject, "{}, as it is set", describe(*named));
  }
}

void check_gid(const RdmaPort& port, const std::string& setting, Findings& findings) {
  const Gid* best = choose_gid(port);
  if (best == nullptr) {
    findings.add("gid.none", about(port),
                 "no RoCE v2 GID: its interface has no address, or is down");
  } else if (!setting.empty()) {
    check_index(port, setting, *best, findings);
  } else if (reach_of(*best) == Reach::kLinkLocal) {
    findings.add("gid.link_local", about(port), "{}, link-local: reaches this network segment only",
                 describe(*best));
  } else {
    findings.add("gid.chosen", about(port), "{}", describe(*best));
  }
}

}  // namespace

const Gid* choose_gid(const RdmaPort& port) {
  const Gid* best = nullptr;
  for (const Gid& gid : port.gids) {
    if (!gid.roce_v2) continue;
    if (best == nullptr || reach_of(gid) < reach_of(*best)) best = &gid;
  }
  return best;
}

void check_gids(const Facts& facts, Findings& findings) {
  for (const RdmaDevice& device : facts.rdma) {
    for (const RdmaPort& port : device.ports) {
      if (port.ethernet && port.active()) check_gid(port, facts.settings.gid_index, findings);
    }
  }
}

// --- mtu: packet sizes: what the interface allows RDMA, and what reaches a peer ---

namespace {

constexpr uint64_t kEthernetMtu = 1500;  // IEEE 802.3, without jumbo frames

void check_port_mtu(const Facts& facts, const RdmaPort& port, Findings& findings) {
  const Netdev* netdev = facts.netdev(port.netdev);
  if (!port.ethernet || netdev == nullptr || netdev->mtu == 0) return;
  const uint64_t mtu = rdma_mtu(netdev->mtu);
  const std::string text =
      fmt::format("interface {} has MTU {}: RDMA MTU {}", netdev->name, netdev->mtu, mtu);
  if (mtu == kRdmaMtus.front()) {
    findings.add("mtu.full", about(port), "{}", text);
  } else {
    findings.add("mtu.small", about(port), "{}; {} needs {}, on the switches too", text,
                 kRdmaMtus.front(), kRdmaMtus.front() + kRoceHeaders);
  }
}

void check_plain_interfaces(const Facts& facts, Findings& findings) {
  for (const Netdev& netdev : facts.netdevs) {
    if (netdev.virtual_device || !netdev.up || netdev.mtu > kEthernetMtu || netdev.mtu == 0) {
      continue;
    }
    findings.add("mtu.no_jumbo", {netdev.name, {{"NETDEV", netdev.name}}},
                 "MTU {}: with 9000, if the network allows it, soft:udp costs less CPU",
                 netdev.mtu);
  }
}

void check_peer(const PeerPath& peer, Findings& findings) {
  const Subject subject{peer.host, {{"PEER", peer.host}}};
  const uint64_t bytes = peer.largest_bytes;
  if (!peer.error.empty()) {
    findings.add(peer.has_address ? FindingId("mtu.peer_no_route") : FindingId("mtu.peer_unknown"),
                 subject, "{}", peer.error);
  } else if (peer.proof == PathProof::kNone) {
    findings.add("mtu.peer_silent", subject,
                 "no answer, even to small packets: a firewall may drop them; start the listener "
                 "there and try again");
  } else if (bytes < peer.wanted_bytes) {
    findings.add("mtu.peer_small", subject,
                 "packets of {} bytes get there {}, those of {} bytes do not: RDMA MTU {} at most",
                 bytes, peer.proof == PathProof::kBothWays ? "and back" : "unfragmented",
                 peer.wanted_bytes, rdma_mtu(bytes));
  } else if (peer.proof == PathProof::kBothWays) {
    findings.add("mtu.peer_both_ways", subject,
                 "packets of {} bytes went there and came back, unfragmented: RDMA MTU {}", bytes,
                 rdma_mtu(bytes));
  } else {
    findings.add("mtu.peer_one_way", subject,
                 "packets of {} bytes got there unfragmented (its kernel refused them): RDMA MTU "
                 "{}; for the way back start the listener there",
                 bytes, rdma_mtu(bytes));
  }
}

}  // namespace

void check_mtu(const Facts& facts, Findings& findings) {
  for (const RdmaDevice& device : facts.rdma) {
    for (const RdmaPort& port : device.ports) check_port_mtu(facts, port, findings);
  }
  if (facts.rdma.empty()) check_plain_interfaces(facts, findings);
  if (facts.peer) check_peer(*facts.peer, findings);
}

// --- fabric: PFC and DCQCN, which keep a RoCE network from dropping packets; counters of losses
// ---

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

void check_port_fabric(const Facts& facts, const RdmaDevice& device, const RdmaPort& port,
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
      if (port.active()) check_port_fabric(facts, device, port, findings);
    }
  }
}

}  // namespace pacecar::preflight
