#include <fmt/format.h>

#include <vector>

#include "transport/sim/fabric.h"

namespace pacecar {
namespace {

constexpr uint32_t kMaxProcesses = 1U << 24;   // limit of addresses
constexpr uint32_t kMaxProcessesOfHost = 256;  // limit of the field in packets
constexpr uint16_t kMaxPaths = 60'000;         // limit of UDP ports
constexpr Bytes kMaxDatagram = 65'507;         // of UDP over IPv4
constexpr uint64_t kMaxBps = 1'000'000'000'000'000;
constexpr Bytes kMaxBytes = Bytes{1} << 50;  // far beyond any buffer; sums do not overflow

tl::unexpected<Error> refuse(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

bool is_probability(double value) { return value >= 0 && value <= 1; }

Result<void> check_cables(const Topology& topology) {
  for (size_t i = 0; i < topology.cables.size(); ++i) {
    const Cable& cable = topology.cables[i];
    if (cable.rate.bps() == 0 || cable.rate.bps() > kMaxBps || cable.delay < Duration()) {
      return refuse(
          fmt::format("cable {} of topology {} has a rate of {} b/s and a delay of {} ns: "
                      "choose 1 to {} b/s and 0 ns or more",
                      i, topology.name, cable.rate.bps(), cable.delay.ns(), kMaxBps));
    }
  }
  return {};
}

Result<void> check_hosts(const FabricConfig& config) {
  const HostPortConfig& hosts = config.hosts;
  const Bytes largest = hosts.datagram_bytes + hosts.overhead_bytes;
  if (hosts.datagram_bytes == 0 || hosts.datagram_bytes > kMaxDatagram) {
    return refuse(fmt::format("hosts.datagram_bytes is {}: choose 1 to {}", hosts.datagram_bytes,
                              kMaxDatagram));
  }
  if (hosts.overhead_bytes > kMaxDatagram) {
    return refuse(fmt::format("hosts.overhead_bytes is {}: choose at most {}", hosts.overhead_bytes,
                              kMaxDatagram));
  }
  if (hosts.control_queue_bytes < largest) {
    return refuse(
        fmt::format("hosts.control_queue_bytes ({}) must hold the largest packet, {} "
                    "bytes: raise it or lower hosts.datagram_bytes",
                    hosts.control_queue_bytes, largest));
  }
  if (hosts.inbox_bytes < hosts.datagram_bytes) {
    return refuse(fmt::format("hosts.inbox_bytes ({}) must hold the largest datagram, {} bytes",
                              hosts.inbox_bytes, hosts.datagram_bytes));
  }
  if (hosts.paths == 0 || hosts.paths > kMaxPaths) {
    return refuse(fmt::format("hosts.paths is {}: choose 1 to {}", hosts.paths, kMaxPaths));
  }
  return {};
}

Result<void> check_policers(const FabricConfig& config, const Topology& topology) {
  const Bytes largest = config.hosts.datagram_bytes + config.hosts.overhead_bytes;
  std::vector<bool> policed(2 * topology.cables.size());
  for (const PolicerConfig& policer : config.policers) {
    if (policer.link >= policed.size() || policed[policer.link]) {
      return refuse(
          fmt::format("there is no link {} for a policer, or it has one: name each of "
                      "the links 0 to {} at most once",
                      policer.link, policed.size() - 1));
    }
    policed[policer.link] = true;
    if (policer.rate.bps() == 0 || policer.rate.bps() > kMaxBps || policer.burst < largest ||
        policer.burst > kMaxBytes) {
      return refuse(
          fmt::format("the policer of link {} has a rate of {} b/s and a burst of {} bytes: choose "
                      "1 to {} b/s, and a burst that holds the largest packet, {} bytes",
                      policer.link, policer.rate.bps(), policer.burst, kMaxBps, largest));
    }
  }
  return {};
}

Result<void> check_ecn(const EcnConfig& ecn) {
  if (!is_probability(ecn.max_probability)) {
    return refuse(
        fmt::format("switches.ecn.max_probability is {}: choose 0 to 1", ecn.max_probability));
  }
  if (ecn.kind == EcnConfig::Kind::kRed && ecn.high < ecn.low) {
    return refuse(fmt::format(
        "switches.ecn.high ({}) is below switches.ecn.low ({}): exchange them", ecn.high, ecn.low));
  }
  return {};
}

Result<void> check_pfc(const SwitchConfig& switches) {
  if (!switches.pfc.enabled) return {};
  if (switches.buffer_bytes == 0) {
    return refuse(
        "switches.pfc needs a shared buffer to divide: set switches.buffer_bytes, for example "
        "4194304");
  }
  if (switches.queue_bytes > 0 || switches.trimming) {
    return refuse(
        "switches.pfc loses nothing, and switches.queue_bytes and switches.trimming would: set "
        "them to 0 and false");
  }
  if (!(switches.pfc.alpha > 0 && switches.pfc.alpha <= 1024)) {
    return refuse(fmt::format("switches.pfc.alpha is {}: choose more than 0 and at most 1024",
                              switches.pfc.alpha));
  }
  return {};
}

Result<void> check_switches(const FabricConfig& config) {
  const SwitchConfig& switches = config.switches;
  const Bytes largest = config.hosts.datagram_bytes + config.hosts.overhead_bytes;
  if (switches.queue_bytes == 0 && switches.buffer_bytes == 0) {
    return refuse(
        "a switch without bounds could hold everything: set switches.queue_bytes (per port) or "
        "switches.buffer_bytes (shared)");
  }
  for (const Bytes bytes : {switches.queue_bytes, switches.buffer_bytes}) {
    if (bytes > 0 && (bytes < largest || bytes > kMaxBytes)) {
      return refuse(
          fmt::format("switches.queue_bytes ({}) and switches.buffer_bytes ({}) must each "
                      "be 0 or hold the largest packet, {} bytes",
                      switches.queue_bytes, switches.buffer_bytes, largest));
    }
  }
  if (switches.trimming && (switches.trimmed_bytes == 0 || switches.trimmed_bytes > largest)) {
    return refuse(fmt::format("switches.trimmed_bytes is {}: choose 1 to {}, the largest packet",
                              switches.trimmed_bytes, largest));
  }
  if (auto ok = check_ecn(switches.ecn); !ok) return ok;
  return check_pfc(switches);
}

}  // namespace

Result<void> check_fabric_config(const FabricConfig& config, const Topology& topology) {
  if (topology.processes == 0 || topology.processes > kMaxProcessesOfHost) {
    return refuse(fmt::format("the topology has {} processes per host: choose 1 to {}",
                              topology.processes, kMaxProcessesOfHost));
  }
  if (topology.hosts > kMaxProcesses / topology.processes) {
    return refuse(fmt::format(
        "the topology has {} hosts with {} processes each: this simulator numbers at most {}",
        topology.hosts, topology.processes, kMaxProcesses));
  }
  if (auto ok = check_cables(topology); !ok) return ok;
  if (config.payload == PayloadMode::kLength &&
      (config.header_bytes == 0 || config.header_bytes > kMaxDatagram)) {
    return refuse(
        fmt::format("header_bytes is {}: choose 1 to {}", config.header_bytes, kMaxDatagram));
  }
  if (config.packets == 0) return refuse("packets is 0: choose at least 1");
  if (config.failover < Duration()) return refuse("failover is negative: choose 0 or more");
  if (auto ok = check_hosts(config); !ok) return ok;
  if (auto ok = check_policers(config, topology); !ok) return ok;
  return check_switches(config);
}

}  // namespace pacecar
