// Devices, ports and device nodes, libibverbs and its providers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {
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

void check_port(const RdmaDevice& device, const RdmaPort& port, Findings& findings) {
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
      check_port(device, port, findings);
      any_active |= port.active();
    }
  }
  if (!any_active) {
    findings.add("rdma.no_active_port", "RDMA devices",
                 "no port of any RDMA device is active: nothing can be sent over RDMA");
  }
  check_library(facts, findings);
}

}  // namespace pacecar::preflight
